// SPDX-License-Identifier: Apache-2.0
/*
 * A checkpoint: a snapshot of a sandbox that goes on. It is a struct space whose `checkpoint` is
 * set. Until its files are written, which happens in the background, it is held in memory.
 */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_CHECKPOINT_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_CHECKPOINT_H

#include "orchestrator/snapshot/space.h"
#include "orchestrator/vm/vmproc.h"

struct sandbox;
struct store_answer;

/* Frees the memory of the snapshot if it is written and nobody uses it; else has it written. */
void checkpoint_give_back(struct checkpoint *k);

/* The snapshot of a sandbox; checkpoint_add takes it over, also on failure. */
struct checkpoint_taken {
	char id[SANDBOX_ID_LEN + 1];
	struct vmproc_image *image;
	uint64_t bytes; /* that it will take on disk */
	struct exec_point *call;
	uint64_t seq, call_seq;
	bool guest_busy;
};
/* Adds a checkpoint of the sandbox to the catalogue, with the answer to the request for it (NULL:
 * none), and begins to write it. Returns NULL with *f filled on failure. */
struct space *checkpoint_add(struct sandbox *s, const struct checkpoint_spec *spec,
			     const struct checkpoint_taken *taken,
			     const struct store_answer *answer, struct failure *f);
/* Removes a checkpoint that nobody uses, from the catalogue, from memory, and its files in the
 * background. `event`: its name in the audit log; NULL: it is not recorded there. Returns 0, or
 * -errno with *e filled. */
int checkpoint_remove(struct space *p, const char *event, const char *text, struct err *e);
/* Returns whether it is neither pinned nor in use. */
bool checkpoint_is_removable(const struct space *p);
/* Returns 0, or -errno with *e filled and nothing changed. */
int checkpoint_set_kind(struct space *p, enum checkpoint_kind kind, struct err *e);
void checkpoint_view_fill(const struct space *p, struct checkpoint_view *view);

/* Drops the rows of checkpoints that a previous instance held in memory only. */
int checkpoints_drop_unstored(struct service *c, struct err *e);

/* checkpoint-write.c: */
/* Writes the next checkpoint that is not in use to disk, unless one is being written. */
void checkpoint_write_next(struct service *c);
/* The same, in a moment. */
void checkpoint_write_soon(struct service *c);
/* Stops writing this checkpoint and removes its files. */
void checkpoint_write_stop(struct checkpoint *k);

#endif
