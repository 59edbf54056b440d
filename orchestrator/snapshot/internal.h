// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room. */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_INTERNAL_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_INTERNAL_H

#include "orchestrator/snapshot/snapshots.h"
#include "orchestrator/snapshot/space.h"
#include "orchestrator/snapshot/state.h"

struct op;
struct ready_vm;
struct sandbox;

/* Starts the sandbox's next fork, unless a snapshot for another fork of it is being taken. */
void fork_start_waiting(struct sandbox *s);
/* Returns the seconds until a retry after taking a snapshot failed with `error`; 0: waiting does
 * not help. */
unsigned fork_retry_s(int error);
/* Fails the forks of a sandbox that ends or whose VM is about to be replaced. */
void fork_sandbox_gone(struct sandbox *s, const struct failure *f);

/* Begins the sandbox's freeze if it is next for a slot and has all it needs. */
void freeze_start_waiting(struct sandbox *s);
void freezes_free(struct service *c);
/* Gives up the sandbox's freeze, if there is one. Calls that wait for it fail with `f`; NULL: they
 * are freed, since the sandbox is. */
void freeze_sandbox_gone(struct sandbox *s, const struct failure *f);
/* Returns how many bytes of the Space are written, and how many it will have; both are 0 when no
 * Space is being written. */
void freeze_progress(const struct sandbox *s, uint64_t *written, uint64_t *total);
/* Requests the sandbox's freeze, or joins the freeze under way. `op` (NULL: none) waits for its
 * end. */
void freeze_start(struct sandbox *s, struct op *op);
/* Drops a waiting freeze that a time limit started, since the sandbox is in use again or its limit
 * was changed. */
void freeze_sandbox_touched(struct sandbox *s);

/* Completes a rollback: gives the sandbox `parent` the VM of `winner`, a sandbox that was started
 * from the checkpoint `to` and is neither in a list nor in the catalogue. Operations in progress
 * fail with FAIL_ROLLED_BACK. Returns true, having taken over `winner` and `ready`; or false with
 * *f filled and nothing changed. */
bool merge_rolled_back(struct sandbox *parent, struct sandbox *winner, struct ready_vm *ready,
		       const struct space *to, struct failure *f);
/* Returns whether a checkpoint of the sandbox is within the limits; else fills in *f. */
bool fork_may_take(const struct sandbox *s, struct failure *f);
/* Gives up a checkpoint, unless its snapshot has begun: then returns false. */
bool fork_withdraw(struct op *op);
/* Returns whether fork_into may give the sandbox `id` a VM from the checkpoint; else fills in *f.
 */
bool fork_into_fits(struct service *c, const char *tenant, const char *checkpoint, const char *id,
		    struct failure *f);
/* Starts a VM from the checkpoint and gives that VM to the sandbox `id`. */
struct op *fork_into(struct service *c, const char *tenant, const char *checkpoint, const char *id,
		     service_done_fn *fn, void *arg);

/* Removes the files of the Space that the sandbox was resumed from, if the sandbox has ended. */
void resume_shed(struct sandbox *s);

void spaces_free(struct service *c);
/* Frees the state of space-load.c. Removals in progress complete without it. */
void spaces_unload(struct service *c);

/* Returns a rollback that fails with `f`. */
struct op *rollback_refuse(struct service *c, const struct failure *f, service_rollback_fn *fn,
			   void *arg);

/* each-call.c: checkpoints that are taken after each call of a sandbox (checkpoint_calls). */
/* To be called when the sandbox is used. If a call begins, a checkpoint whose snapshot has not
 * begun comes after it. */
void each_call_touched(struct sandbox *s);
/* Takes the checkpoint if it is due. */
void each_call_start_waiting(struct sandbox *s);
/* Gives up the checkpoint that is being taken: the sandbox loses its VM. */
void each_call_stop(struct sandbox *s);
/* Does the same, and empties the sandbox's list of checkpoints after calls. */
void each_call_shed(struct sandbox *s);
/* Adds a checkpoint that was taken to the sandbox's list. */
void each_call_added(struct sandbox *s, struct checkpoint *k);
/* Returns the number of the sandbox's state. */
uint64_t each_call_state(const struct sandbox *s);
/* Notes that the sandbox has another state, with this number: after a rollback the state of the
 * checkpoint `to`, after a merge (`to` is NULL) the winner's state. */
void each_call_moved(struct sandbox *s, uint64_t state, const struct space *to);
/* Returns whether the service removes this checkpoint by itself, some time after its sandbox has
 * ended. */
bool each_call_over(const struct space *p);

#endif
