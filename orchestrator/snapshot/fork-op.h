// SPDX-License-Identifier: Apache-2.0
/*
 * The operation of a fork, for the files that make it up: fork.c has its steps, fork-children.c
 * makes the children, and fork-from.c starts them from checkpoints and Spaces.
 */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_FORK_OP_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_FORK_OP_H

#include "orchestrator/exec/queue.h"
#include "orchestrator/pool/vm-bringup.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/snapshot/space-open.h"

enum fork_state {
	FORK_ROOM,     /* waits for room in the tree */
	FORK_BLANKS,   /* waits for blank VMs and disk layers */
	FORK_WAITING,  /* waits for its turn to take a snapshot of the parent */
	FORK_COPYING,  /* the parent's VM process takes the snapshot */
	FORK_CHILDREN, /* waits for the children to become usable */
	FORK_MADE,
	FORK_NSTATES,
};

enum fork_event {
	FORK_GRANTED,	  /* there is room */
	FORK_PARTS_READY, /* the blank VMs and disk layers are ready */
	FORK_OPENED,	  /* these are ready, and the snapshot of a checkpoint or Space is opened */
	FORK_COPY,
	FORK_COPIED,
	FORK_USABLE, /* all children */
	FORK_NEVENTS,
};

struct child {
	struct fork *fork;
	struct vmproc *blank;	    /* set until the snapshot is complete */
	bool is_ready;		    /* the blank VM is ready; later, the bring-up is */
	int writable;		    /* its disk layer; -1 once the snapshot is complete */
	struct vm_bringup *bringup; /* set from the snapshot on, until all children are usable */
	struct ready_vm ready;	    /* set once all children are usable */
	struct sandbox *sandbox;    /* set until it is in the catalogue */
	char id[SANDBOX_ID_LEN + 1];
	char *error; /* why the child was given up, or NULL */
};

struct fork {
	struct op op;
	/* Report the end. Which of these is set depends on the request; none: op.done_fn is. */
	service_fork_fn *fn;
	service_create_fn *created_fn;
	service_checkpoint_fn *taken_fn;
	char into[SANDBOX_ID_LEN + 1]; /* the sandbox that gets the VM; empty: a new one does */
	/* The source of the children: a sandbox, or the checkpoint or Space of `open`. */
	struct sandbox *parent; /* valid until FORK_MADE: a parent that ends fails its forks */
	struct space_open open;
	enum fork_state state;
	struct tree_claim claim;
	struct op *freeze; /* of a leaf of the tree, which makes room; or NULL */
	char *labels;
	bool reseed;
	unsigned n, missing;	 /* children; blank VMs, layers or children still awaited */
	struct child *children;	 /* NULL while the fork waits for room: many large forks may wait */
	struct disk_job *layers; /* being opened */
	int writable;		 /* the parent's next disk layer */
	struct vmproc_request *request;
	struct vmproc_image *image;
	/* The service's state of the parent when the snapshot was taken. */
	struct exec_point point;
	struct replay replay;
	uint64_t seq, state_seq; /* numbers of the parent's last event, and of its state */
	int64_t noted_at_ms;
	struct checkpoint_ref checkpoint; /* the parent's last checkpoint */
	uint32_t history_n;		  /* number of the parent's last entry */
	bool guest_busy;
	struct sandbox_config config; /* of the children: the parent's when they were started */
	char *metadata, *env;	      /* of the children; NULL: the parent's */
	size_t env_len;
	struct checkpoint_spec take;	/* for taken_fn; it owns its texts */
	char taken[SANDBOX_ID_LEN + 1]; /* the checkpoint that was made */
	char *tenant;
	struct tenant *taker;	 /* owner of the checkpoint that is being taken; NULL: none is */
	struct tenant_wait wait; /* of a checkpoint that lacks a part of the tenant's limits */
	uint64_t began_ns;
	struct service_forked made; /* the result, with statistics */
};

/* Returns a fork that reports nothing yet; the caller sets what it reports to. */
struct fork *fork_new(struct service *c, const char *tenant, void *arg);
/* Notes what the request says of the children. */
void fork_note_spec(struct fork *fork, const struct fork_spec *spec);
/* Returns whether a fork may have `n` children, else false with *f filled. */
bool fork_check(struct service *c, unsigned n, struct failure *f);
/* Returns whether there is room for `n` sandboxes of the size, else false with *f filled. */
bool fork_has_room(struct service *c, const char *tenant, unsigned n, const struct size *size,
		   struct failure *f);
/* Gets the layers and blank VMs: fork_part_ready is called for each blank VM, once for all layers,
 * and `more` times. */
void fork_start(struct fork *fork, unsigned more);
void fork_part_ready(struct fork *fork);
void fork_step(struct fork *fork, enum fork_event event);
/* Finishes the fork with the failure. Returns the operation. */
struct op *fork_fail(struct fork *fork, const struct failure *f);

/* Makes a row for each child that was not given up. Returns their number, or -ENOMEM. */
int fork_make_rows(struct fork *fork, struct store_sandbox *rows);
void fork_note_stats(struct fork *fork);
/* Adds the children to the catalogue, with the request's key if it has one. Returns 0 or -errno. */
int fork_record(struct fork *fork, struct store_sandbox *rows, int n, struct err *e);
/* Makes the `n` recorded children usable, and finishes the fork. */
void fork_begin(struct fork *fork, int n);

#endif
