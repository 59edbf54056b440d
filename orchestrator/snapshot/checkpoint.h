// SPDX-License-Identifier: Apache-2.0
/*
 * A checkpoint: a snapshot of a sandbox that goes on. A checkpoint is a struct space whose
 * `checkpoint` is set, and is held in memory until its files are written, in the background.
 */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_CHECKPOINT_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_CHECKPOINT_H

#include "orchestrator/snapshot/space.h"
#include "orchestrator/vm/vmproc.h"

struct sandbox;
struct store_answer;

/* Frees the snapshot's memory if the files are written, else has them written; does nothing while
 * sandboxes are being started from the checkpoint. */
void checkpoint_give_back(struct checkpoint *k);

/* The snapshot of a sandbox; checkpoint_add takes it over, also on failure. */
struct checkpoint_taken {
	char id[SANDBOX_ID_LEN + 1];
	struct vmproc_image *image;
	uint64_t bytes; /* that it will take on disk */
	struct exec_point *call;
	uint64_t seq, call_seq;
	uint32_t history_n; /* number of the sandbox's last entry */
	bool guest_busy;
};
/* Adds a checkpoint of the sandbox to the catalogue, with the answer to the request for it (NULL:
 * none), and begins to write it. Returns NULL with *f filled on failure. */
struct space *checkpoint_add(struct sandbox *s, const struct checkpoint_spec *spec,
			     const struct checkpoint_taken *taken,
			     const struct store_answer *answer, struct failure *f);
/* Removes a checkpoint that nobody uses from the catalogue and from memory, and then its files in
 * the background. `event`: the name under which the audit log has the removal; NULL: the log does
 * not have it. Returns 0, or -errno with *e filled. */
int checkpoint_remove(struct space *p, const char *event, const char *text, struct err *e);
/* Returns whether the checkpoint is neither pinned nor in use. */
bool checkpoint_is_removable(const struct space *p);
/* Sets the kind, also in the catalogue. Returns 0, or -errno with *e filled and nothing changed. */
int checkpoint_set_kind(struct space *p, enum checkpoint_kind kind, struct err *e);
void checkpoint_view_fill(const struct space *p, struct checkpoint_view *view);

/* Drops the rows of checkpoints that a previous instance held in memory only. */
int checkpoints_drop_unstored(struct service *c, struct err *e);

/* checkpoint-write.c: */
/* Writes the next checkpoint that is not in use to disk, unless one is being written. */
void checkpoint_write_next(struct service *c);
/* Calls checkpoint_write_next in a moment. */
void checkpoint_write_soon(struct service *c);
/* Stops writing this checkpoint, if that has begun, and removes what was written. */
void checkpoint_write_stop(struct checkpoint *k);

#endif
