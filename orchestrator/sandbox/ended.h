// SPDX-License-Identifier: Apache-2.0
/* Sandboxes that have ended. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_ENDED_H
#define RAMET_ORCHESTRATOR_SANDBOX_ENDED_H

#include "base/list.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/store/store.h"

struct core;
struct sandbox;

/* The sandboxes that have ended, as part of struct core; private to ended.c. */
struct ended_sandboxes {
	struct list kept; /* ended sandboxes whose record is kept, oldest first */
	size_t n_kept;
	struct list unrecorded; /* ended sandboxes whose end is not in the catalogue */
	size_t n_unrecorded;
	struct loop_timer record, purge;
	uint32_t record_ms; /* between the last two tries; 0: all ends are written */
};

/* Writes the end to the catalogue, with retries when that fails. Until it is written, the sandbox
 * is on ended.unrecorded and no other VM gets its slot, so that its row never names another
 * sandbox's VM. */
void ended_record(struct sandbox *s);
/* Drops the VM of an ended sandbox. `gone` gets the sandbox and calls ended_vm_gone. */
void ended_drop_vm(struct sandbox *s, void (*gone)(void *arg));
/* Keeps the record of how the sandbox ended, or frees it. */
void ended_vm_gone(struct sandbox *s);
/* Keeps the sandbox as the record of its end, and frees another one when too many are kept. */
void ended_keep(struct sandbox *s);
/* Loads the ended sandboxes to keep from the catalogue. */
int ended_load(struct core *c, store_sandbox_fn *each, struct err *e);
/* Starts removing old ended sandboxes, from the catalogue too. */
void ended_purge(struct core *c);
/* Gives up recording ends that are not in the catalogue yet: the next instance finds that their VMs
 * are gone. */
void ended_close(struct core *c);

#endif
