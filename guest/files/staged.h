// SPDX-License-Identifier: Apache-2.0
/*
 * A staged file: written under a temporary name in the folder of its path, then renamed to it. The
 * agent keeps the table of uploads and removes what a killed worker left on the disk; workers
 * create, write and rename the file. Both see staged->file, in shared memory.
 */
#ifndef RAMET_GUEST_FILES_STAGED_H
#define RAMET_GUEST_FILES_STAGED_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "proto/agent.h"

enum staged_state {
	STAGED_NEW,  /* not created yet */
	STAGED_OPEN, /* `temporary` may exist */
	STAGED_OVER, /* it was renamed or removed */
};

struct staged_file {
	enum staged_state state;
	char path[PATH_MAX];
	char temporary[PATH_MAX]; /* in the folder of `path` */
};

struct staged {
	struct list node; /* in the table of uploads, or in no list */
	char id[AGENT_ID_LEN + 1];
	unsigned workers; /* using it now */
	bool commits;	  /* one of them commits it */
	int64_t touched;  /* by loop_now_ms */
	struct staged_file *file;
};

/* --- the agent ------------------------------------------------------------------------------ */

/* Creates a staged file; one with an id (not NULL) is entered in the table of uploads. It lives
 * while it is in the table or a worker uses it; its temporary file is removed with it. Returns NULL
 * with *e filled: -EEXIST, -EAGAIN or -ENOMEM. */
struct staged *staged_new(const char *id, struct err *e);
/* Returns the upload with that id and postpones its expiry, or NULL. Its file may not exist yet, or
 * no longer. */
struct staged *staged_find(const char *id);
/* Count a worker that begins or ends; staged_unuse may free `d`. */
void staged_use(struct staged *d);
void staged_unuse(struct staged *d);
/* Removes an upload from the table; frees `d` unless a worker uses it. */
void staged_drop(struct staged *d);
/* Empties the table; uploads that workers use lose their files too. */
void staged_drop_all(void);
/* Drops uploads that were not used for an hour. Returns the milliseconds until the next call is
 * due; -1: never. */
int staged_expire(void);

/* --- workers -------------------------------------------------------------------------------- */

/* Creates missing folders and the empty temporary file of `path`. The file has the given mode (0:
 * that of the file it will replace) and the owner of the file it will replace. Returns a
 * descriptor, open for writing, or -errno. */
int staged_create(struct staged_file *f, const char *path, uint32_t mode, struct err *e);
/* Opens the temporary file again, for reading and writing. */
int staged_open(const struct staged_file *f, struct err *e);
/* Renames the temporary file to its path. */
int staged_rename(struct staged_file *f, struct err *e);
void staged_remove(struct staged_file *f);

#endif
