// SPDX-License-Identifier: Apache-2.0
/* Sandboxes that have ended. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_ENDED_H
#define RAMET_ORCHESTRATOR_SANDBOX_ENDED_H

#include "base/list.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/store/store.h"

struct service;
struct sandbox;

/* The state of ended.c. */
struct ended_sandboxes {
	struct list kept; /* ended sandboxes that are kept to report how they ended, oldest first */
	size_t n_kept;
	struct list unrecorded; /* ended sandboxes whose end is not in the catalogue */
	size_t n_unrecorded;
	struct loop_timer record;
	uint32_t record_ms; /* delay of the next try to write ends; 0: the last one succeeded */
};

/* Writes the end to the catalogue, with retries when that fails. Until it is written, the sandbox
 * is on ended.unrecorded and no other VM gets its slot, so that its row never names another
 * sandbox's VM. */
void ended_record(struct sandbox *s);
/* Drops the VM of a sandbox that ends. Once it is gone, calls `gone` with the sandbox, which must
 * call ended_vm_gone. */
void ended_drop_vm(struct sandbox *s, void (*gone)(void *arg));
/* Keeps the sandbox as the record of its end, or frees it, once its end is in the catalogue. */
void ended_vm_gone(struct sandbox *s);
/* Keeps the sandbox as the record of its end, and frees another one when too many are kept. */
void ended_keep(struct sandbox *s);
/* Calls `each` with the service for the catalogue's recently ended sandboxes. Returns 0, or -errno
 * with *e filled. */
int ended_load(struct service *c, store_sandbox_fn *each, struct err *e);
/* Frees the sandboxes that ended long ago, and removes the oldest of them from the catalogue.
 * Returns how many rows it removed, at most `most`, or -errno. */
int ended_purge(struct service *c, unsigned most);
/* Tries a last time to record the ends that are not in the catalogue yet. If that fails, the next
 * instance finds that the VMs are gone. */
void ended_close(struct service *c);

#endif
