// SPDX-License-Identifier: Apache-2.0
/*
 * A draft: a file that is being written beside its place, under a name of its own. Known to the
 * agent, which keeps the table of uploads and takes away what a process left that was killed;
 * made, filled and put in its place by workers. Both see draft->file, in shared memory.
 */
#ifndef RAMET_GUEST_DRAFT_H
#define RAMET_GUEST_DRAFT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "proto/agent.h"

enum draft_state {
	DRAFT_NEW,  /* nothing is there yet */
	DRAFT_OPEN, /* `temporary` may be there */
	DRAFT_OVER, /* it was put in its place or removed */
};

struct draft_file {
	enum draft_state state;
	char place[PATH_MAX];
	char temporary[PATH_MAX]; /* in the same folder */
};

struct draft {
	struct list node; /* in the table of uploads, or alone */
	char id[AGENT_ID_LEN + 1];
	unsigned workers; /* that work on it now */
	bool commits;	  /* one of them puts it in its place */
	int64_t touched;  /* by loop_now_ms */
	struct draft_file *file;
};

/* --- the agent ------------------------------------------------------------------------------ */

/* In the table when it has an id (not NULL). It lives while it is there or a worker uses it; what
 * it has on the disk is removed with it. NULL and *e filled: -EEXIST, -EAGAIN, or no memory. */
struct draft *draft_new(const char *id, struct err *e);
/* The upload of that name, touched, or NULL. Its file may not be there yet, or not any more. */
struct draft *draft_find(const char *id);
/* A worker begins and ends; draft_unuse may free it. */
void draft_use(struct draft *d);
void draft_unuse(struct draft *d);
/* Takes it out of the table. */
void draft_drop(struct draft *d);
/* All of the table, at once: also those that workers use lose their files. */
void draft_drop_all(void);
/* Drops what was not touched for an hour. Gives the milliseconds to the next call; -1: none. */
int draft_expire(void);

/* --- workers -------------------------------------------------------------------------------- */

/* Makes the folders and the empty file beside `path`, open for writing. It has the mode given or,
 * for 0, that of the file it will replace, and its owner. -errno with *e filled. */
int draft_create(struct draft_file *f, const char *path, uint32_t mode, struct err *e);
/* Opens it again, to read and write. */
int draft_open(const struct draft_file *f, struct err *e);
/* Puts it in its place. */
int draft_place(struct draft_file *f, struct err *e);
void draft_remove(struct draft_file *f);

#endif
