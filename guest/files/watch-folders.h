// SPDX-License-Identifier: Apache-2.0
/* The folders that an AGENT_WATCH has inotify watches on, with their paths. */
#ifndef RAMET_GUEST_FILES_WATCH_FOLDERS_H
#define RAMET_GUEST_FILES_WATCH_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define WATCH_FOLDERS_MAX 8192

struct watched {
	int wd;
	struct watched *parent; /* NULL: this is the watched path itself */
	char *name;		/* within `parent`; else the path */
};

/* A zeroed struct with an inotify descriptor is an empty list. */
struct watch_folders {
	int inotify;
	bool recursive;
	struct watched **list; /* sorted by wd; never changes its order, as the kernel counts up */
	size_t count, room;
	size_t scanned; /* the folders before this index were searched for further ones */
};

/* Fills *e after a watch on `path` failed with ENOSPC: names the limit that was reached, the
 * service's or the kernel's. Returns -EUSERS. */
int watch_folders_full(const struct watch_folders *f, const char *path, struct err *e);
/* Watches `path`, which is followed when it is a link. */
int watch_folders_start(struct watch_folders *f, const char *path, struct err *e);
/* Watches a folder in a watched one, without what is in it. Returns NULL with errno set:
 * ENOSPC if too many folders are watched, ENOTDIR if `name` is not a folder (any more), or on
 * another file system. */
struct watched *watch_folders_add(struct watch_folders *f, struct watched *parent,
				  const char *name);
struct watched *watch_folders_find(const struct watch_folders *f, int wd);
struct watched *watch_folders_named(const struct watch_folders *f, const struct watched *parent,
				    const char *name);
/* Notes that the folder has moved to `parent` as `name`. Returns 0 or -ENOMEM. */
int watch_folders_move(struct watched *w, struct watched *parent, const char *name);
/* Stops watching the folder and those in it. */
void watch_folders_drop(struct watch_folders *f, struct watched *w);
/* Forgets the folder, which the kernel no longer watches. */
void watch_folders_forget(struct watch_folders *f, struct watched *w);
/* Writes the path of `name` (may be empty) in the folder. Returns false when it does not fit in
 * AGENT_PATH_MAX bytes. */
bool watch_folders_path(const struct watched *w, const char *name, char *out);
void watch_folders_free(struct watch_folders *f);

#endif
