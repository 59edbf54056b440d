// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room. */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_INTERNAL_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_INTERNAL_H

#include "orchestrator/snapshot/space.h"
#include "orchestrator/snapshot/state.h"

struct core_call;
struct sandbox;

/* Starts the sandbox's next fork, unless it is being copied already. */
void fork_start_waiting(struct sandbox *s);
/* Returns the seconds until a retry after taking a snapshot failed with `error`; 0: waiting does
 * not help. */
unsigned fork_retry_s(int error);
/* Fails the forks of a sandbox that ends or whose VM is about to be replaced. */
void fork_sandbox_gone(struct sandbox *s, const struct failure *f);

/* Begins the sandbox's freeze if nothing is in its way and it is next for a slot. */
void freeze_start_waiting(struct sandbox *s);
void freezes_free(struct core *c);
/* The sandbox ends (`f`: its calls fail), or is freed (NULL) while it is to be frozen. */
void freeze_sandbox_gone(struct sandbox *s, const struct failure *f);
/* Bytes of the Space that are written, and all of them; 0 when nothing is being written. */
void freeze_progress(const struct sandbox *s, uint64_t *written, uint64_t *total);
/* Has the sandbox frozen; `call` (or NULL) waits for it. */
void freeze_start(struct sandbox *s, struct core_call *call);

/* The sandbox has ended: the files of the Space it was are not in use any more. */
void resume_shed(struct sandbox *s);

void spaces_free(struct core *c);
/* Frees the state of space-load.c; running removals end with the loop. */
void spaces_unload(struct core *c);

#endif
