// SPDX-License-Identifier: Apache-2.0
/*
 * Brings one VM up, from a blank VM to a guest that is unique and answers: restores it from a
 * template or from the image of another VM, connects to its agent, gives the guest a new identity
 * and new random seeds, grows its file system to the disk, and on request runs the priming calls.
 *
 * A bring-up that has succeeded is a warm sandbox: it has an id already, so that the guest's name
 * is right, and nothing is left to do in it when a client takes it.
 */
#ifndef RAMET_ORCHESTRATOR_POOL_VM_BRINGUP_H
#define RAMET_ORCHESTRATOR_POOL_VM_BRINGUP_H

#include <stdbool.h>
#include <stdint.h>

#include "orchestrator/agent/agent.h"
#include "orchestrator/images/sizes.h"
#include "orchestrator/vm/vmproc.h"

#define BRINGUP_ID_LEN 36 /* "sbx_" + 32 hex digits */

struct privates;
struct template;
struct template_env;
struct vm_bringup;

/* Describes what to bring up: a VM from a ready template, or from an image. */
struct vm_bringup_spec {
	struct size size;
	struct template *template; /* NULL: from `image` */
	const char *private_of; /* map this tenant's copy of the template's memory; NULL: don't */
	struct privates *privates;  /* with `private_of`: the copies */
	struct vmproc_image *image; /* a reference is taken */
	struct vmproc *blank;	    /* the VM to restore, taken over; NULL: a new one */
	int writable;		    /* for `image`: an empty disk layer, taken over */
	bool closed; /* close its egress before the guest starts: no packet leaves the host */
	bool user_generators; /* with `image`: also reseed the random generators of Python and
				 numpy; with `template` that is always done */
	bool prime;	      /* run the priming calls; nobody waits for the VM */
};

/*
 * Called from the loop with the bring-up when its VM is ready. Called with NULL and a sentence when
 * it fails, also after it was ready; the bring-up is freed by then.
 */
typedef void vm_bringup_fn(void *arg, struct vm_bringup *b, const char *text);

/* Starts to bring a VM up. */
struct vm_bringup *vm_bringup_start(const struct template_env *env,
				    const struct vm_bringup_spec *spec, vm_bringup_fn *fn,
				    void *arg);
/* Drops the VM, in any state; no callback follows. NULL is fine. */
void vm_bringup_free(struct vm_bringup *b);
/* Closes the egress of a VM that is ready: for as long as it lives, none of its packets leaves the
 * host. Then calls `fn` as vm_bringup_start does. */
void vm_bringup_close_egress(struct vm_bringup *b, vm_bringup_fn *fn, void *arg);

/* A VM that is ready, and the open connection to its agent. */
struct ready_vm {
	struct vmproc *vm;
	struct agent *agent;
	char id[BRINGUP_ID_LEN + 1]; /* of the sandbox that it becomes */
	uint64_t running_ns;	     /* when its vCPUs started; monotonic ns */
};
/* Frees a bring-up that is ready and returns its VM, for which the caller sets new owners. */
struct ready_vm vm_bringup_take(struct vm_bringup *b);
/* Drops the VM and closes the connection, if there are any. */
void ready_vm_drop(struct ready_vm *ready);

#endif
