// SPDX-License-Identifier: Apache-2.0
#include "guest/files/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/array.h"

int names_add(struct names *n, const char *name)
{
	size_t len = strlen(name) + 1;

	if (n->text_len + len > NAMES_MAX)
		return -E2BIG;
	if (array_grow(&n->text, &n->text_room, n->text_len + len, 1) < 0 ||
	    array_grow(&n->order, &n->room, n->count + 1, sizeof(*n->order)) < 0)
		return -ENOMEM;
	memcpy(n->text + n->text_len, name, len);
	n->order[n->count++] = (uint32_t)n->text_len;
	n->text_len += len;
	return 0;
}

static int by_bytes(const void *a, const void *b, void *text)
{
	return strcmp((char *)text + *(const uint32_t *)a, (char *)text + *(const uint32_t *)b);
}

/* Sorts the names from `first` on and drops duplicates: a folder that changes while it is read may
 * report a name twice. */
static void sort(struct names *n, size_t first)
{
	size_t kept = first;

	if (n->count == first)
		return;
	qsort_r(n->order + first, n->count - first, sizeof(*n->order), by_bytes, n->text);
	for (size_t i = first + 1; i < n->count; i++)
		if (strcmp(names_at(n, kept), names_at(n, i)) != 0)
			n->order[++kept] = n->order[i];
	n->count = kept + 1;
}

int names_add_folder(struct names *n, int fd)
{
	static char buf[32768] __attribute__((aligned(8)));
	size_t first = n->count;
	ssize_t got;

	while ((got = getdents64(fd, buf, sizeof(buf))) > 0) {
		for (char *at = buf; at < buf + got;) {
			const struct dirent64 *d = (const struct dirent64 *)at;
			bool itself = strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0;
			int bad = itself ? 0 : names_add(n, d->d_name);

			if (bad)
				return bad;
			at += d->d_reclen;
		}
	}
	if (got < 0 && errno != ENOENT) /* ENOENT: it was removed meanwhile */
		return -errno;
	sort(n, first);
	return 0;
}

void names_cut(struct names *n, size_t count, size_t text_len)
{
	n->count = count;
	n->text_len = text_len;
}
