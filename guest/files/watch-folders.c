// SPDX-License-Identifier: Apache-2.0
#include "guest/files/watch-folders.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"
#include "proto/agent.h"

#define EVENTS                                                                                     \
	(IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |             \
	 IN_DELETE_SELF | IN_MOVE_SELF | IN_EXCL_UNLINK)

/* Returns the index of the first folder with this wd or a higher one. */
static size_t place_of(const struct watch_folders *f, int wd)
{
	size_t first = 0, end = f->count;

	while (first < end) {
		size_t middle = first + (end - first) / 2;

		if (f->list[middle]->wd < wd)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

struct watched *watch_folders_find(const struct watch_folders *f, int wd)
{
	size_t at = place_of(f, wd);

	return at < f->count && f->list[at]->wd == wd ? f->list[at] : NULL;
}

struct watched *watch_folders_named(const struct watch_folders *f, const struct watched *parent,
				    const char *name)
{
	for (size_t i = 0; i < f->count; i++)
		if (f->list[i]->parent == parent && strcmp(f->list[i]->name, name) == 0)
			return f->list[i];
	return NULL;
}

int watch_folders_move(struct watched *w, struct watched *parent, const char *name)
{
	char *copy = strdup(name);

	if (!copy)
		return -ENOMEM;
	free(w->name);
	w->name = copy;
	w->parent = parent;
	return 0;
}

/* Adds an entry for a new wd. Returns NULL when out of memory. */
static struct watched *append(struct watch_folders *f, int wd, struct watched *parent,
			      const char *name)
{
	size_t at = place_of(f, wd);

	if (array_grow(&f->list, &f->room, f->count + 1, sizeof(*f->list)) < 0)
		return NULL;
	struct watched *w = calloc(1, sizeof(*w));
	if (!w || watch_folders_move(w, parent, name) < 0) {
		free(w);
		return NULL;
	}
	w->wd = wd;
	memmove(f->list + at + 1, f->list + at, (f->count - at) * sizeof(*f->list));
	f->list[at] = w;
	f->count++;
	return w;
}

bool watch_folders_path(const struct watched *w, const char *name, char *out)
{
	const struct watched *chain[AGENT_PATH_MAX / 2 + 1];
	size_t depth = 0, len = 0;

	for (; w; w = w->parent) {
		if (depth == ARRAY_LEN(chain))
			return false;
		chain[depth++] = w;
	}
	while (depth || name) {
		const char *part = depth ? chain[--depth]->name : name;
		size_t part_len = strlen(part), slash = len && out[len - 1] != '/';

		if (!part_len)
			return true;
		if (len + slash + part_len > AGENT_PATH_MAX)
			return false;
		if (slash)
			out[len++] = '/';
		memcpy(out + len, part, part_len + 1);
		len += part_len;
		if (part == name)
			return true;
	}
	return true;
}

static int watch(struct watch_folders *f, const char *path, uint32_t flags)
{
	if (f->count == WATCH_FOLDERS_MAX) {
		errno = ENOSPC;
		return -1;
	}
	return inotify_add_watch(f->inotify, path, EVENTS | flags);
}

int watch_folders_full(const struct watch_folders *f, const char *path, struct err *e)
{
	if (f->count == WATCH_FOLDERS_MAX)
		return err_say(e, EUSERS, "watch %.100s: there are more than %d folders in it",
			       path, WATCH_FOLDERS_MAX);
	return err_say(e, EUSERS,
		       "watch %.100s: programs in the sandbox use all inotify watches; raise the "
		       "limit with sysctl -w fs.inotify.max_user_watches=N",
		       path);
}

int watch_folders_start(struct watch_folders *f, const char *path, struct err *e)
{
	int wd = watch(f, path, 0);

	if (wd < 0)
		return errno == ENOSPC ? watch_folders_full(f, path, e)
				       : err_set(e, errno, "watch %.100s", path);
	return append(f, wd, NULL, path) ? 0 : err_set(e, ENOMEM, "watch %.100s", path);
}

struct watched *watch_folders_add(struct watch_folders *f, struct watched *parent, const char *name)
{
	char path[AGENT_PATH_MAX + 1];
	struct statx st;

	if (!watch_folders_path(parent, name, path)) {
		errno = ENOSPC;
		return NULL;
	}
	errno = ENOTDIR;
	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &st) < 0 ||
	    !S_ISDIR(st.stx_mode) || st.stx_attributes & STATX_ATTR_MOUNT_ROOT)
		return NULL;
	int wd = watch(f, path, IN_ONLYDIR | IN_DONT_FOLLOW);
	if (wd < 0) {
		errno = errno == ENOSPC || errno == ENOMEM ? ENOSPC : ENOTDIR;
		return NULL;
	}
	struct watched *known = watch_folders_find(f, wd);
	if (!known)
		return append(f, wd, parent, name);
	/* The folder has moved, and the events that say so are still to come. */
	if (known->parent)
		watch_folders_move(known, parent, name);
	return known;
}

/* Folders that change places are in each other for a moment, until the next events are read. */
static bool is_in(const struct watch_folders *f, const struct watched *w,
		  const struct watched *folder)
{
	for (size_t above = f->count; w && w != folder; above--)
		w = above ? w->parent : NULL;
	return w;
}

void watch_folders_forget(struct watch_folders *f, struct watched *w)
{
	size_t at = place_of(f, w->wd);

	memmove(f->list + at, f->list + at + 1, (f->count - at - 1) * sizeof(*f->list));
	f->count--;
	f->scanned -= at < f->scanned;
	for (size_t i = 0; i < f->count; i++)
		if (f->list[i]->parent == w)
			f->list[i]->parent = w->parent;
	free(w->name);
	free(w);
}

void watch_folders_drop(struct watch_folders *f, struct watched *w)
{
	for (size_t i = f->count; i-- > 0;) {
		struct watched *in = f->list[i];

		/* A negative wd marks a folder to remove. It is freed below, since is_in still
		 * needs it. */
		if (in == w || !is_in(f, in, w))
			continue;
		inotify_rm_watch(f->inotify, in->wd);
		in->wd = -in->wd;
	}
	inotify_rm_watch(f->inotify, w->wd);
	w->wd = -w->wd;
	size_t kept = 0, scanned = 0;
	for (size_t i = 0; i < f->count; i++) {
		struct watched *in = f->list[i];

		if (in->wd < 0) {
			free(in->name);
			free(in);
			continue;
		}
		scanned += i < f->scanned;
		f->list[kept++] = in;
	}
	f->count = kept;
	f->scanned = scanned;
}

void watch_folders_free(struct watch_folders *f)
{
	for (size_t i = 0; i < f->count; i++) {
		free(f->list[i]->name);
		free(f->list[i]);
	}
	free(f->list);
	f->list = NULL;
	f->count = f->room = f->scanned = 0;
}
