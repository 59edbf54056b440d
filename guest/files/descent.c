// SPDX-License-Identifier: Apache-2.0
#include "guest/files/descent.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "guest/files/worker-io.h"

static const char *name_at(const struct descent *d, size_t i)
{
	return d->names + d->order[i];
}

static int add_name(struct descent *d, const char *name)
{
	size_t len = strlen(name) + 1;

	if (d->names_len + len > NAMES_MAX)
		return -E2BIG;
	if (array_grow(&d->names, &d->names_room, d->names_len + len, 1) < 0 ||
	    array_grow(&d->order, &d->order_room, d->count + 1, sizeof(*d->order)) < 0)
		return -ENOMEM;
	memcpy(d->names + d->names_len, name, len);
	d->order[d->count++] = (uint32_t)d->names_len;
	d->names_len += len;
	return 0;
}

static int by_bytes(const void *a, const void *b, void *names)
{
	return strcmp((char *)names + *(const uint32_t *)a, (char *)names + *(const uint32_t *)b);
}

/* Sorts the names from `first` on and drops duplicates: a folder that changes while it is read may
 * report a name twice. */
static void sort(struct descent *d, size_t first)
{
	size_t kept = first;

	if (d->count == first)
		return;
	qsort_r(d->order + first, d->count - first, sizeof(*d->order), by_bytes, d->names);
	for (size_t i = first + 1; i < d->count; i++)
		if (strcmp(name_at(d, kept), name_at(d, i)) != 0)
			d->order[++kept] = d->order[i];
	d->count = kept + 1;
}

/* Adds the names in the folder (not . and ..). Returns 0 or -errno. */
static int read_names(struct descent *d, int fd)
{
	static char buf[32768] __attribute__((aligned(8)));
	size_t first = d->count;
	ssize_t got;

	while ((got = getdents64(fd, buf, sizeof(buf))) > 0) {
		for (char *at = buf; at < buf + got;) {
			const struct dirent64 *entry = (const struct dirent64 *)at;
			const char *name = entry->d_name;
			bool itself = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
			int bad = itself ? 0 : add_name(d, name);

			if (bad)
				return bad;
			at += entry->d_reclen;
		}
	}
	if (got < 0 && errno != ENOENT) /* ENOENT: it was removed meanwhile */
		return -errno;
	sort(d, first);
	return 0;
}

void descent_enter(struct descent *d, int fd)
{
	struct level l = {.fd = fd,
			  .path_len = d->path_len,
			  .names_len = d->names_len,
			  .first = d->count,
			  .next = d->count};
	int bad = array_grow(&d->levels, &d->levels_room, d->depth + 1, sizeof(l));

	if (!bad)
		d->levels[d->depth++] = l;
	if (!bad)
		bad = read_names(d, fd);
	if (bad == -E2BIG)
		worker_io_fail(E2BIG,
			       "list %.100s: more than %u MiB of names in the folders of this path",
			       d->path, NAMES_MAX >> 20);
	errno = -bad;
	if (bad)
		worker_io_fail_path("list", d->path);
}

const char *descent_next(struct descent *d, int *folder)
{
	struct level *l = &d->levels[d->depth - 1];

	*folder = l->fd;
	if (l->next < d->count)
		return name_at(d, l->next++);
	close(l->fd);
	d->count = l->first;
	d->names_len = l->names_len;
	d->depth--;
	return NULL;
}

bool descent_set_path(struct descent *d, const char *name, size_t max)
{
	size_t parent_len = d->levels[d->depth - 1].path_len, len = strlen(name);
	size_t slash = parent_len && d->path[parent_len - 1] != '/';

	if (parent_len + slash + len > max)
		return false;
	d->path[parent_len] = '/';
	memcpy(d->path + parent_len + slash, name, len + 1);
	d->path_len = parent_len + slash + len;
	return true;
}
