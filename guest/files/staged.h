// SPDX-License-Identifier: Apache-2.0
/*
 * A staged file: written under a temporary name in the folder of its path, then renamed to it. A
 * worker creates, writes and renames the file. The agent removes what a killed worker left on the
 * disk: the struct is in memory that both share (worker_staged). Nothing is synced: a sandbox whose
 * VM dies loses its disk too, and one that is frozen or forked keeps its kernel's memory.
 */
#ifndef RAMET_GUEST_FILES_STAGED_H
#define RAMET_GUEST_FILES_STAGED_H

#include <limits.h>
#include <stdint.h>

#include "base/err.h"
#include "base/random.h"

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

/* Makes a random name for a temporary file. */
#define STAGED_NAME_SIZE (sizeof(".ramet-") + 2 * RANDOM_ID_BYTES)
static inline void staged_name(char out[static STAGED_NAME_SIZE])
{
	random_id(out, STAGED_NAME_SIZE, ".ramet-");
}
/* Creates missing folders and the empty temporary file of `path`. The temporary file has the owner
 * of the file that it will replace, and the given mode (0: that file's mode, too). Returns a
 * descriptor, open for writing, or -errno. */
int staged_create(struct staged_file *f, const char *path, uint32_t mode, struct err *e);
/* Renames the temporary file to its path. */
int staged_rename(struct staged_file *f, struct err *e);
void staged_remove(struct staged_file *f);

#endif
