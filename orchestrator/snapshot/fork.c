// SPDX-License-Identifier: Apache-2.0
/*
 * Forks a sandbox into n children, all or none:
 * 0. Wait for room in the tree, if it has a budget and is to wait.
 * 1. Get blank VMs of the parent's size, and disk layers. This comes first, so that the parent does
 *    not stay paused for it.
 * 2. Take a snapshot of the parent's VM.
 * 3. Start all children in parallel. Each guest must confirm that it is unique.
 * 4. Add the children to the catalogue in one transaction.
 * A failure before the end of step 4 undoes everything, and the parent continues unchanged.
 *
 * A checkpoint is a fork without children: step 1 gets the parent's disk layer only, and step 2 is
 * followed by adding the snapshot to the catalogue. Sandboxes are started from a checkpoint or
 * Space with the same steps, except that the existing snapshot is opened during step 1 instead of
 * step 2, and that a child that fails does not undo the others. For a rollback, one child is
 * started so, and its VM is given to the sandbox that is rolled back instead of step 4.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "base/state-machine.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/images/disk-layer.h"
#include "orchestrator/images/host.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/pool/vm-bringup.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-files.h"
#include "orchestrator/snapshot/space-open.h"

/* A fork copies the running calls for each child. Maximum bytes of long unfinished lines in all of
 * these copies, and the same of unfinished results. */
#define HELD_MOST (64u << 20)

#define GETS_NONE "gets no checkpoint" /* a sandbox at a limit */

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
	FORK_PARTS_READY, /* the blank VMs and disk layers */
	FORK_OPENED,	  /* these, and the snapshot of a checkpoint or Space */
	FORK_COPY,
	FORK_COPIED,
	FORK_USABLE, /* all children */
	FORK_NEVENTS,
};

/* A fork that fails is freed, in any state. */
static const uint8_t next[FORK_NSTATES][FORK_NEVENTS] = {
	[FORK_ROOM] = {[FORK_GRANTED] = STATE_TO(FORK_BLANKS)},
	[FORK_BLANKS] = {[FORK_PARTS_READY] = STATE_TO(FORK_WAITING),
			 [FORK_OPENED] = STATE_TO(FORK_CHILDREN)},
	[FORK_WAITING] = {[FORK_COPY] = STATE_TO(FORK_COPYING)},
	[FORK_COPYING] = {[FORK_COPIED] = STATE_TO(FORK_CHILDREN)},
	[FORK_CHILDREN] = {[FORK_USABLE] = STATE_TO(FORK_MADE)},
};
static const struct state_machine machine = STATE_MACHINE("fork", next);

struct child {
	struct fork *fork;
	struct vmproc *blank;	    /* until the snapshot is complete */
	bool is_ready;		    /* the blank VM, then the bring-up */
	int writable;		    /* its disk layer, until the snapshot is complete */
	struct vm_bringup *bringup; /* from the snapshot on, until all children are usable */
	struct ready_vm ready;	    /* once all are usable */
	struct sandbox *sandbox;    /* until it is in the catalogue */
	char id[SANDBOX_ID_LEN + 1];
	char *error; /* why it was given up, or NULL */
};

struct fork {
	struct op op;
	/* Reports the end: one of these is set, by what was asked for, or op.done_fn. */
	service_fork_fn *fn;
	service_create_fn *created_fn;
	service_checkpoint_fn *taken_fn;
	char into[SANDBOX_ID_LEN + 1]; /* the sandbox that gets the VM; empty: a new one does */
	/* The source of the children: a sandbox, or the checkpoint or Space of `open`. */
	struct sandbox *parent; /* valid until FORK_MADE: a parent that ends fails its forks */
	struct space_open open;
	enum fork_state state;
	struct tree_claim claim;
	struct op *freeze; /* of a leaf, to make room; or NULL */
	char *labels;
	bool reseed;
	unsigned n, missing;	 /* children; blank VMs, layers or children still awaited */
	struct child *children;	 /* NULL while the fork waits for room, as many large ones may */
	struct disk_job *layers; /* being opened */
	int writable;		 /* the parent's next disk layer */
	struct vmproc_request *request;
	struct vmproc_image *image;
	/* The service's state of the parent when the snapshot was taken. */
	struct exec_point point;
	struct replay replay;
	uint64_t seq, state_seq; /* numbers of its last event, and of its state */
	int64_t noted_at_ms;
	struct checkpoint_ref checkpoint; /* the parent's last one */
	uint32_t history_n;		  /* of the parent's last entry */
	bool guest_busy;
	struct sandbox_config config; /* of the children: the parent's when they were started */
	char *metadata, *env;	      /* of the children; NULL: the parent's */
	size_t env_len;
	struct checkpoint_spec take;	/* for taken_fn; it owns its texts */
	char taken[SANDBOX_ID_LEN + 1]; /* the checkpoint that was made */
	char *tenant;
	struct tenant *taker; /* of a checkpoint that is being taken; NULL: none is */
	uint64_t began_ns;
	struct service_forked made; /* the result, with statistics */
};

static void step(struct fork *fork, enum fork_event event)
{
	fork->state = (enum fork_state)state_after(&machine, fork->state, event);
}

static struct fork *fork_of(const struct op *op)
{
	return container_of(op, struct fork, op);
}

static void child_fini(struct child *child)
{
	if (child->blank)
		vmproc_drop(child->blank, NULL, NULL);
	disk_close(child->fork->op.service->loop, &child->writable);
	vm_bringup_free(child->bringup);
	ready_vm_drop(&child->ready);
	if (child->sandbox)
		sandbox_free(child->sandbox);
	free(child->error);
}

/* Allows the parent's next snapshot, and reads the parent's output again. */
static void release_parent(struct fork *fork)
{
	struct sandbox *s = fork->parent;

	snapshots_of(s)->copying = NULL;
	exec_hold(s, false);
	sandbox_schedule(s);
}

/* Stops waiting for the leaf's freeze, which goes on. */
static void leave_freeze(struct fork *fork)
{
	if (fork->freeze)
		op_abandon(fork->freeze);
	fork->freeze = NULL;
}

static void fork_put_away(struct op *op)
{
	struct fork *fork = fork_of(op);

	tree_claim_drop(&fork->claim);
	leave_freeze(fork);
	disk_job_cancel(fork->layers);
	disk_close(op->service->loop, &fork->writable);
	if (fork->request)
		vmproc_request_cancel(fork->request);
	if (fork->state == FORK_COPYING)
		release_parent(fork);
	for (unsigned i = 0; fork->children && i < fork->n; i++)
		child_fini(&fork->children[i]);
	vmproc_image_put(fork->image);
	exec_point_fini(&fork->point);
	replay_fini(&fork->replay);
	checkpoint_ref_set(&fork->checkpoint, NULL);
	free(fork->children);
	space_open_fini(&fork->open);
	free(fork->metadata);
	free(fork->env);
	free((char *)(uintptr_t)fork->take.name);
	free((char *)(uintptr_t)fork->take.labels);
	free(fork->tenant);
	free(fork->labels);
	if (fork->taker)
		snapshots_of_tenant(fork->taker)->taking--;
	tenant_put(fork->taker);
}

static void fail(struct fork *fork, const struct failure *f)
{
	snapshots_of_service(fork->op.service)->fork_failures++;
	op_finish(&fork->op, f);
}

/* --- children ------------------------------------------------------------------------------- */

/* Copies what the child has from its parent, or from the checkpoint or Space. */
static bool inherit(struct fork *fork, struct sandbox *s)
{
	const struct sandbox *p = fork->parent;
	const struct space *from = fork->open.space;
	const char *metadata = p ? p->metadata : from->metadata;

	if (p)
		sandbox_set_env(s, p->env, p->env_len);
	else if (fork->env)
		sandbox_set_env(s, fork->env, fork->env_len);
	else
		sandbox_set_env(s, from->env, from->env_len);
	checkpoint_ref_set(&snapshots_of(s)->checkpoint,
			   p ? fork->checkpoint.to : from->checkpoint);
	snapshots_of(s)->given = (struct given_state){fork->seq, fork->state_seq};
	return sandbox_set_metadata(s, fork->metadata ? fork->metadata : metadata);
}

/* Puts the child into its tree: below the sandbox that is forked, or that the checkpoint is of.
 * Sandboxes of a Space take the place of the sandbox that was frozen, as after a resume. */
static void place(const struct fork *fork, struct sandbox *s)
{
	const struct space *from = fork->open.space;
	char *ancestors;

	if (fork->parent)
		ancestors = lineage_of_child(fork->parent);
	else
		ancestors = must_copy(space_is_checkpoint(from) ? from->checkpoint->ancestors : "");
	free(s->ancestors);
	s->ancestors = ancestors;
	s->tree = tree_hold(fork->claim.tree);
	s->depth = fork->claim.depth;
}

static void begin_history(const struct fork *fork, struct sandbox *s)
{
	const struct space *from = fork->open.space;
	struct history_entry e = {.kind = fork->created_fn ? HISTORY_CREATED : HISTORY_FORKED,
				  .at_ms = s->created_at_ms,
				  .began_ms =
					  fork->parent ? fork->noted_at_ms : from->created_at_ms,
				  .seq = fork->history_n};

	snprintf(e.text, sizeof(e.text), "%s", fork->parent ? fork->parent->id : from->id);
	history_add(&exec_of(s)->history, &e, 0);
}

/* Returns a child that is complete except for the VM, or NULL without memory. */
static struct sandbox *sandbox_of(struct fork *fork)
{
	struct sandbox *s = sandbox_new(fork->op.service, "", fork->tenant);

	place(fork, s);
	s->config = fork->config;
	s->seq = fork->seq;
	exec_of(s)->main.guest_busy = fork->guest_busy;
	if (inherit(fork, s) && sandbox_set_labels(s, fork->labels) &&
	    replay_copy(&exec_of(s)->replay, &fork->replay) == 0 &&
	    exec_copy(s, fork->parent ? &fork->point : fork->open.call) == 0)
		return s;
	sandbox_free(s);
	return NULL;
}

/* Makes a child exactly as old as its sibling: histories and merges of files tell forks apart by
 * their times. */
static void take_times(struct sandbox *s, const struct sandbox *sibling)
{
	s->created_at_ms = sibling->created_at_ms;
	s->expires_at_ms = sibling->expires_at_ms;
	s->expires_ms = sibling->expires_ms;
}

static struct store_sandbox row_of(struct sandbox *s)
{
	const struct snapshot_sandbox *of = snapshots_of(s);
	struct store_sandbox row = sandbox_row(s);

	row.checkpoint = checkpoint_ref_id(&of->checkpoint);
	row.given_seq = of->given.seq;
	row.given_state = of->given.state;
	return row;
}

/* Makes a row for each child that was not given up. Returns their number, or -ENOMEM. */
static int make_rows(struct fork *fork, struct store_sandbox *rows)
{
	const struct sandbox *first = NULL;
	int n = 0;

	for (unsigned i = 0; i < fork->n; i++) {
		struct child *child = &fork->children[i];

		if (child->error)
			continue;
		child->sandbox = sandbox_of(fork);
		if (!child->sandbox)
			return -ENOMEM;
		child->ready = vm_bringup_take(child->bringup);
		child->bringup = NULL;
		memcpy(child->id, child->ready.id, sizeof(child->id));
		sandbox_note_vm(child->sandbox, &child->ready);
		if (!first)
			first = child->sandbox;
		take_times(child->sandbox, first);
		begin_history(fork, child->sandbox);
		rows[n++] = row_of(child->sandbox);
	}
	return n;
}

static void note_stats(struct fork *fork)
{
	struct service_forked *made = &fork->made;

	for (unsigned i = 0; i < fork->n; i++) {
		const struct child *child = &fork->children[i];
		uint64_t ready_us =
			child->error ? 0 : (child->ready.running_ns - fork->began_ns) / 1000;

		if (ready_us > made->ready_us)
			made->ready_us = ready_us;
	}
	if (!fork->parent)
		return;
	made->pause_us = fork->image->pause_ns / 1000;
	made->copied_bytes = fork->image->copied_bytes;
}

static void note_parent_forked(struct fork *fork)
{
	snapshots_of_service(fork->op.service)->forks++;
	log_info("sandbox %s: forked into %u, its VM was paused for %llu us, %llu KiB copied",
		 fork->parent->id, fork->n, (unsigned long long)fork->made.pause_us,
		 (unsigned long long)fork->made.copied_bytes >> 10);
	exec_happened(fork->parent,
		      &(struct history_entry){.kind = HISTORY_FORK,
					      .at_ms = fork->children[0].sandbox->created_at_ms,
					      .children = (uint16_t)fork->n});
	sandbox_touch(fork->parent);
}

static void begin(struct fork *fork, int n)
{
	struct service *c = fork->op.service;

	step(fork, FORK_USABLE);
	if (fork->parent) {
		note_parent_forked(fork);
	} else {
		snapshots_of_service(c)->n_started += (unsigned)n;
		log_info("%s %s: %d sandboxes started from it", space_noun(fork->open.space->id),
			 fork->open.space->id, n);
	}
	tree_claim_drop(&fork->claim);
	vmproc_image_put(fork->image);
	fork->image = NULL;
	for (unsigned i = 0; i < fork->n; i++) {
		struct child *child = &fork->children[i];
		struct sandbox *s = child->sandbox;

		child->sandbox = NULL;
		if (s)
			sandbox_begin(s, &child->ready);
	}
	pool_rest(c->pool, SANDBOX_HEAD_START_MS);
	op_finish(&fork->op, NULL);
}

static void note_event(struct fork *fork, const struct sandbox *child)
{
	const struct space *from = fork->open.space;
	struct audit_event event = {.name = "sandbox.forked"};

	if (fork->created_fn)
		event.name = "sandbox.created";
	if (fork->parent)
		event.parent = fork->parent->id;
	else if (space_is_checkpoint(from))
		event.checkpoint = from->id;
	else
		event.space = from->id;
	life_note(child, event);
}

/* Adds the children to the catalogue, with the request's key if it has one. */
static int record(struct fork *fork, struct store_sandbox *rows, int n, struct err *e)
{
	scoped_free char *ids = must_alloc(fork->n * sizeof(fork->children[0].id));
	struct store_answer answer = {0};
	size_t len = 0;

	for (unsigned i = 0; i < fork->n; i++)
		len += (size_t)sprintf(ids + len, "%s%s", i ? " " : "",
				       fork->children[i].error ? "-" : fork->children[i].id);
	rows[0].answer = op_answer(&fork->op, fork->tenant,
				   fork->created_fn ? MADE_SANDBOX
				   : fork->parent   ? MADE_CHILDREN
						    : MADE_STARTS,
				   ids, &answer);
	answer.pause_us = fork->made.pause_us;
	answer.ready_us = fork->made.ready_us;
	answer.copied_bytes = fork->made.copied_bytes;
	for (unsigned i = 0; i < fork->n; i++)
		if (fork->children[i].sandbox)
			note_event(fork, fork->children[i].sandbox);
	return store_sandboxes_add(fork->op.service->store, rows, (size_t)n, e);
}

static void fail_all(struct fork *fork)
{
	const struct space *from = fork->open.space;
	struct failure f;

	failure_set(&f, FAIL_VM_FAILED, 5, "no sandbox could be started from %s %s: %.160s",
		    space_noun(from->id), from->id, fork->children[0].error);
	fail(fork, &f);
}

/* Gives the only child's VM to the sandbox that is rolled back. */
static void roll_back(struct fork *fork)
{
	struct child *child = &fork->children[0];
	struct failure f;
	struct sandbox *s = sandbox_find_reached(fork->op.service, fork->tenant, fork->into, &f);

	if (!s || !merge_rolled_back(s, child->sandbox, &child->ready, fork->open.space, &f)) {
		fail(fork, &f);
		return;
	}
	child->sandbox = NULL;
	step(fork, FORK_USABLE);
	snapshots_of_service(fork->op.service)->n_rollbacks++;
	op_finish(&fork->op, NULL);
}

/* Returns whether the sandbox that is rolled back has lost its network since its next VM was
 * started with network access. */
static bool must_close(const struct fork *fork)
{
	const struct sandbox *s = sandbox_living(fork->op.service, fork->tenant, fork->into);

	return s && !s->config.egress && fork->config.egress && !fork->children[0].error;
}

static void on_bringup(void *arg, struct vm_bringup *w, const char *text);

/* Closes the network of the only child's VM; complete() comes again after that. */
static void close_first(struct fork *fork)
{
	struct child *child = &fork->children[0];

	fork->config.egress = false;
	fork->missing = 1;
	child->is_ready = false;
	vm_bringup_close_egress(child->bringup, on_bringup, child);
}

static void complete(struct fork *fork)
{
	scoped_free struct store_sandbox *rows = must_alloc(fork->n * sizeof(*rows));
	struct failure f;
	struct err e;

	if (must_close(fork)) {
		close_first(fork);
		return;
	}
	int n = make_rows(fork, rows);
	if (n == 0) {
		fail_all(fork);
		return;
	}
	if (n < 0) {
		failure_set(&f, FAIL_NO_MEMORY, 5, "the service has no memory for the request");
		fail(fork, &f);
		return;
	}
	note_stats(fork);
	if (fork->into[0]) {
		roll_back(fork);
		return;
	}
	if (record(fork, rows, n, &e) < 0) {
		failure_set(&f, FAIL_CATALOGUE, 5, "%s", e.text);
		fail(fork, &f);
	} else {
		begin(fork, n);
	}
}

static void child_done(struct fork *fork)
{
	if (--fork->missing == 0)
		complete(fork);
}

static void on_bringup(void *arg, struct vm_bringup *w, const char *text)
{
	struct child *child = arg;
	struct fork *fork = child->fork;
	struct failure f;

	if (w) {
		child->is_ready = true;
		child_done(fork);
		return;
	}
	child->bringup = NULL;
	if (!fork->parent) {
		child->error = must_copy(text);
		if (!child->is_ready)
			child_done(fork);
		return;
	}
	failure_set(&f, FAIL_VM_FAILED, 5, "one of %u children could not be started: %.180s",
		    fork->n, text);
	fail(fork, &f);
}

static void start_child(struct child *child, struct vmproc_image *image)
{
	struct fork *fork = child->fork;
	const struct vm_bringup_spec spec = {.size = fork->config.size,
					     .image = image,
					     .blank = child->blank,
					     .writable = take_fd(&child->writable),
					     .closed = !fork->config.egress,
					     .user_generators = fork->reseed};

	child->blank = NULL;
	child->is_ready = false;
	child->bringup =
		vm_bringup_start(&fork->op.service->template_env, &spec, on_bringup, child);
}

static void start_children(struct fork *fork, struct vmproc_image *image)
{
	fork->missing = 1;
	for (unsigned i = 0; i < fork->n; i++) {
		if (fork->children[i].error)
			continue;
		fork->missing++;
		start_child(&fork->children[i], image);
	}
	child_done(fork);
}

/* --- the snapshot --------------------------------------------------------------------------- */

/* -E2BIG lasts until children of earlier forks end, -ENOTSUP forever. */
unsigned fork_retry_s(int error)
{
	return error == -E2BIG || error == -ENOTSUP ? 0 : 5;
}

/* Makes the snapshot a checkpoint. */
static void keep(struct fork *fork)
{
	struct store_answer answer;
	struct checkpoint_taken taken = {.image = fork->image,
					 .bytes = space_bytes_of(fork->image),
					 .call = &fork->point,
					 .seq = fork->seq,
					 .call_seq = fork->state_seq,
					 .guest_busy = fork->guest_busy};
	struct failure f;

	if (!space_has_room(fork->parent, taken.bytes, GETS_NONE, &f)) {
		fail(fork, &f);
		return;
	}
	fork->image = NULL;
	random_id(taken.id, sizeof(taken.id), CHECKPOINT_ID_PREFIX);
	const struct space *p = checkpoint_add(
		fork->parent, &fork->take, &taken,
		op_answer(&fork->op, fork->tenant, MADE_CHECKPOINT, taken.id, &answer), &f);
	if (!p) {
		fail(fork, &f);
		return;
	}
	step(fork, FORK_USABLE);
	memcpy(fork->taken, p->id, sizeof(fork->taken));
	sandbox_touch(fork->parent);
	op_finish(&fork->op, NULL);
}

static void on_copied(void *arg, int error, const char *text, struct vmproc_image *image)
{
	struct fork *fork = arg;
	struct failure f;

	fork->request = NULL;
	if (error) {
		failure_set(&f, FAIL_FORK_FAILED, fork_retry_s(error),
			    "the VM could not be copied: %.180s", text);
		fail(fork, &f);
		return;
	}
	step(fork, FORK_COPIED);
	fork->image = image;
	release_parent(fork);
	fork->config = fork->parent->config;
	fork->config.checkpoint_calls = 0;
	if (fork->taken_fn)
		keep(fork);
	else
		start_children(fork, image);
}

/*
 * Copies the service's state of the parent. The count of output bytes and the replay must belong to
 * the same moment, and must not be ahead of the snapshot. Therefore nothing is read from the guest
 * until the snapshot is complete. The guest in the snapshot still holds the output that the service
 * has not read: the children get it when they attach to the call.
 */
static int note_parent(struct fork *fork)
{
	struct sandbox *s = fork->parent;

	exec_hold(s, true);
	fork->seq = s->seq;
	fork->state_seq = each_call_state(s);
	fork->noted_at_ms = realtime_ms();
	checkpoint_ref_set(&fork->checkpoint, snapshots_of(s)->checkpoint.to);
	fork->history_n = history_last(&exec_of(s)->history);
	fork->guest_busy = exec_of(s)->main.guest_busy;
	int ret = exec_note(s, &fork->point);
	return ret < 0 ? ret : replay_copy(&fork->replay, &exec_of(s)->replay);
}

/* Returns whether copies of `held` bytes are too much. A fork makes one for each child; the only
 * copy of a checkpoint counts for the tenant, who may have many checkpoints in memory. */
static bool is_too_much(const struct fork *fork, size_t held)
{
	if (fork->n)
		return fork->n * held > HELD_MOST;
	return held > LINE_TIGHT_BYTES && output_is_tight(exec_of(fork->parent)->output);
}

/* Delivers long unfinished lines of the parent in parts, as if memory was short, since each child
 * or checkpoint gets a copy of them. Returns false when a reader of these parts has ended the
 * fork. */
static bool cut_lines(struct op *op)
{
	struct sandbox *s = fork_of(op)->parent;

	while (snapshots_of(s)->copying == op && is_too_much(fork_of(op), exec_lines(s)) &&
	       exec_cut_longest(s))
		;
	return snapshots_of(s)->copying == op;
}

static void copy(struct fork *fork)
{
	struct sandbox *s = fork->parent;
	struct failure f;

	step(fork, FORK_COPY);
	snapshots_of(s)->copying = &fork->op;
	if (!cut_lines(&fork->op))
		return;
	int ret = note_parent(fork);
	if (is_too_much(fork, exec_point_results(&fork->point)))
		exec_point_drop_results(&fork->point);
	if (ret == 0) {
		fork->request = vmproc_fork(s->vm, fork->n ? fork->n : 1, take_fd(&fork->writable),
					    on_copied, fork);
		return;
	}
	failure_set(&f, FAIL_FORK_FAILED, 5, "the VM could not be copied: no memory");
	fail(fork, &f);
}

void fork_start_waiting(struct sandbox *s)
{
	if (snapshots_of(s)->copying)
		return;
	list_each (pos, &snapshots_of(s)->forks) {
		struct op *op = container_of(pos, struct op, link);

		if (fork_of(op)->state != FORK_WAITING)
			continue;
		copy(fork_of(op));
		return;
	}
}

void fork_sandbox_gone(struct sandbox *s, const struct failure *f)
{
	list_each_safe (pos, &snapshots_of(s)->forks)
		fail(fork_of(container_of(pos, struct op, link)), f);
}

/* --- blank VMs and layers ------------------------------------------------------------------- */

static void part_ready(struct fork *fork)
{
	if (--fork->missing)
		return;
	if (fork->parent) {
		step(fork, FORK_PARTS_READY);
		sandbox_schedule(fork->parent);
	} else {
		step(fork, FORK_OPENED);
		fork->guest_busy = fork->open.guest_busy;
		start_children(fork, fork->open.image);
	}
}

static void on_blank_ready(void *arg)
{
	struct child *child = arg;

	child->is_ready = true;
	part_ready(child->fork);
}

static void on_blank_died(void *arg, const char *reason)
{
	struct child *child = arg;
	struct fork *fork = child->fork;
	struct failure f;

	if (!fork->parent) {
		child->error = must_copy(reason);
		vmproc_drop(child->blank, NULL, NULL);
		child->blank = NULL;
		if (!child->is_ready)
			part_ready(fork);
		return;
	}
	failure_set(&f, FAIL_VM_FAILED, 5, "a VM for the child could not be started: %.180s",
		    reason);
	fail(fork, &f);
}

static const struct vmproc_owner blank_owner = {on_blank_ready, on_blank_died};

/* Takes the disk layers: one for each child, and one for the parent, whose current layer becomes
 * part of the snapshot. */
static void on_layers(void *arg, struct disk_job *layers)
{
	struct fork *fork = arg;
	struct failure f;

	fork->layers = NULL;
	if (layers->job.ret < 0) {
		failure_set(&f, FAIL_FORK_FAILED, 5, "%s", layers->job.err.text);
		fail(fork, &f);
		return;
	}
	if (fork->parent)
		fork->writable = take_fd(&layers->fds[fork->n]);
	for (unsigned i = 0; i < fork->n; i++)
		fork->children[i].writable = take_fd(&layers->fds[i]);
	part_ready(fork);
}

static void take_blanks(struct fork *fork)
{
	struct service *c = fork->op.service;
	const struct size *size = &fork->config.size;
	struct vmproc_spec spec = size_vm_spec(size, false);
	unsigned ready = 0;

	for (unsigned i = 0; i < fork->n; i++) {
		struct child *child = &fork->children[i];

		child->blank = pool_take_blank(c->pool, size);
		if (!child->blank)
			break;
		vmproc_set_owner(child->blank, &blank_owner, child);
		child->is_ready = true;
		ready++;
	}
	for (unsigned i = ready; i < fork->n; i++) {
		struct child *child = &fork->children[i];

		child->blank = vmproc_spawn(&c->vms, &spec, &blank_owner, child);
	}
	for (; ready; ready--)
		part_ready(fork);
}

/* --- the call ------------------------------------------------------------------------------- */

static bool check(struct service *c, unsigned n, struct failure *f)
{
	if (c->closing) {
		failure_set(f, FAIL_STOPPING, 5, "the service is stopping");
		return false;
	}
	if (n < 1 || n > c->config.fork_max) {
		failure_set(f, FAIL_OUT_OF_RANGE, 0, "n is %u, it must be from 1 to %u", n,
			    c->config.fork_max);
		return false;
	}
	if (n >= vmproc_host_usable(&c->vms)) {
		failure_set(f, FAIL_NO_CAPACITY, 0,
			    "n is %u, and this host can run %u VMs, including the parent's", n,
			    vmproc_host_usable(&c->vms));
		return false;
	}
	return true;
}

static bool has_room(struct service *c, const char *tenant, unsigned n, const struct size *size,
		     struct failure *f)
{
	return tenant_has_room(c, tenant, n, f) && host_has_room(c, n, f) &&
	       tenant_has_disk(c, tenant, (uint64_t)n * size->rootfs_gb, f) &&
	       promises_have_room(c, (uint64_t)n * size->ram_mib, f);
}

static void notify_children(struct fork *fork)
{
	scoped_free const char **ids = must_alloc(fork->n * sizeof(*ids));
	scoped_free const char **errors = must_alloc(fork->n * sizeof(*errors));

	for (unsigned i = 0; i < fork->n; i++) {
		const struct child *child = &fork->children[i];

		ids[i] = child->error ? NULL : child->id;
		errors[i] = child->error;
	}
	fork->made.ids = ids;
	fork->made.errors = errors;
	fork->made.n = fork->n;
	fork->fn(fork->op.arg, &fork->made, NULL);
}

static void notify_created(struct fork *fork)
{
	const struct op *op = &fork->op;
	struct failure f = op->failure;
	struct sandbox_view view;
	struct sandbox *s =
		op->failed ? NULL
			   : sandbox_find(op->service, fork->tenant, fork->children[0].id, &f);

	if (s)
		sandbox_view_fill(s, &view);
	fork->created_fn(op->arg, s ? &view : NULL, s ? NULL : &f);
}

static void notify_taken(struct fork *fork)
{
	const struct op *op = &fork->op;
	struct failure f = op->failure;
	struct checkpoint_view view;
	bool is_there = !op->failed &&
			service_checkpoint_view(op->service, fork->tenant, fork->taken, &view, &f);

	fork->taken_fn(op->arg, is_there ? &view : NULL, is_there ? NULL : &f);
}

static void fork_notify(struct op *op)
{
	struct fork *fork = fork_of(op);

	if (fork->taken_fn)
		notify_taken(fork);
	else if (fork->created_fn)
		notify_created(fork);
	else if (!fork->fn)
		op_notify_done(op);
	else if (op->failed)
		fork->fn(op->arg, NULL, &op->failure);
	else
		notify_children(fork);
}

static void drop_taken(struct fork *fork)
{
	struct space *p = space_of(fork->op.service, fork->taken);
	struct err e;

	if (p && !p->users &&
	    checkpoint_remove(p, "checkpoint.deleted", "the client that took it disconnected", &e) <
		    0)
		log_error("checkpoint %s can't be removed: %s", p->id, e.text);
}

/* Deletes what was made: the client never received the ids. */
static void fork_abandon(struct op *op)
{
	struct fork *fork = fork_of(op);

	if (fork->taken[0])
		drop_taken(fork);
	for (unsigned i = 0; fork->state == FORK_MADE && !fork->into[0] && i < fork->n; i++) {
		struct sandbox *s = sandbox_living(op->service, fork->tenant, fork->children[i].id);

		if (s)
			sandbox_end(s, "deleted", "the client that forked it disconnected", true);
	}
	op_free(op);
}

static const struct op_methods fork_ops = {
	.size = sizeof(struct fork),
	.makes_sandboxes = true,
	.put_away = fork_put_away,
	.notify = fork_notify,
	.abandon = fork_abandon,
};

static struct fork *fork_new(struct service *c, const char *tenant, void *arg)
{
	struct fork *fork = fork_of(op_new(c, &fork_ops, arg));

	fork->writable = -1;
	fork->tenant = must_copy(tenant);
	return fork;
}

static struct op *refuse(struct fork *fork, const struct failure *f)
{
	fail(fork, f);
	return &fork->op;
}

static void note_spec(struct fork *fork, const struct fork_spec *spec)
{
	fork->reseed = spec->reseed;
	fork->labels = must_copy(spec->labels ? spec->labels : "{}");
	fork->n = spec->n;
}

static void make_children(struct fork *fork)
{
	fork->children = must_alloc((fork->n + 1) * sizeof(*fork->children));
	for (unsigned i = 0; i < fork->n; i++)
		fork->children[i] = (struct child){.fork = fork, .writable = -1};
}

/* Gets the layers and blank VMs: part_ready is called for each blank VM, once for all layers, and
 * `more` times. */
static void start(struct fork *fork, unsigned more)
{
	struct service *c = fork->op.service;

	step(fork, FORK_GRANTED);
	make_children(fork);
	fork->began_ns = now_ns();
	fork->missing = fork->n + 1 + more;
	fork->layers = disk_layers_open(c->loop, c->config.state_dir, fork->n + !!fork->parent,
					on_layers, fork);
	take_blanks(fork);
}

static void start_from_parent(struct fork *fork)
{
	struct sandbox *s = fork->parent;

	op_expect(&fork->op, s->owner, fork->n, &s->config.size);
	sandbox_touch(s);
	start(fork, 0);
}

static void on_granted(void *arg, const struct failure *f)
{
	struct fork *fork = arg;
	struct failure full;

	leave_freeze(fork); /* room came from elsewhere */
	if (f || !has_room(fork->op.service, fork->tenant, fork->n, &fork->config.size, &full))
		fail(fork, f ? f : &full);
	else
		start_from_parent(fork);
}

/* A leaf is frozen, or has ended in another way. */
static void on_leaf_frozen(void *arg, const char *space, const struct failure *f)
{
	struct fork *fork = arg;

	fork->freeze = NULL;
	if (f && (f->code == FAIL_FREEZE_FAILED || f->code == FAIL_QUOTA_REACHED ||
		  f->code == FAIL_STOPPING))
		fail(fork, f);
	else
		tree_claim_again(&fork->claim);
}

static void freeze_leaf(void *arg, const char *id)
{
	struct fork *fork = arg;

	fork->freeze = service_freeze(fork->op.service, fork->tenant, id, on_leaf_frozen, fork);
}

static const struct tree_claimant claimant = {on_granted, freeze_leaf};

struct op *service_fork(struct service *c, const char *tenant, const char *id,
			const struct fork_spec *spec, service_fork_fn *fn, void *arg)
{
	struct fork *fork = fork_new(c, tenant, arg);
	struct failure f;

	fork->fn = fn;
	struct sandbox *s = check(c, spec->n, &f) ? sandbox_find(c, tenant, id, &f) : NULL;
	if (s)
		fork->claim = (struct tree_claim){.tree = s->tree,
						  .node = s,
						  .depth = s->depth + 1,
						  .n = spec->n,
						  .mib = s->config.size.ram_mib,
						  .claimant = &claimant,
						  .arg = fork};
	if (!s || !has_room(c, tenant, spec->n, &s->config.size, &f) ||
	    !tree_claim(&fork->claim, &f))
		return refuse(fork, &f);
	fork->parent = s;
	fork->config = s->config;
	note_spec(fork, spec);
	list_add_tail(&snapshots_of(s)->forks, &fork->op.link);
	if (fork->claim.granted)
		start_from_parent(fork);
	return &fork->op;
}

/* --- checkpoints ---------------------------------------------------------------------------- */

bool fork_may_take(const struct sandbox *s, struct failure *f)
{
	const struct snapshot_tenant *of = snapshots_of_tenant(s->owner);
	struct service *c = s->service;

	return tenant_has_checkpoint(c, s->tenant, of->checkpoints.n + of->taking, f) &&
	       space_has_room(s, 1, GETS_NONE, f) && host_has_room(c, 0, f);
}

static char *copy_of(const char *text)
{
	return text ? must_copy(text) : NULL;
}

struct op *service_checkpoint(struct service *c, const char *tenant, const char *id,
			      const struct checkpoint_spec *spec, service_checkpoint_fn *fn,
			      void *arg)
{
	struct fork *fork = fork_new(c, tenant, arg);
	struct failure f;

	fork->taken_fn = fn;
	struct sandbox *s = sandbox_find(c, tenant, id, &f);
	if (s && c->closing) {
		failure_set(&f, FAIL_STOPPING, 5, "the service is stopping");
		s = NULL;
	}
	if (!s || !fork_may_take(s, &f))
		return refuse(fork, &f);
	fork->parent = s;
	fork->config = s->config;
	fork->take = *spec;
	fork->take.name = copy_of(spec->name);
	fork->take.labels = copy_of(spec->labels);
	fork->taker = tenant_hold(s->owner);
	snapshots_of_tenant(s->owner)->taking++;
	list_add_tail(&snapshots_of(s)->forks, &fork->op.link);
	sandbox_touch(s);
	start(fork, 0);
	return &fork->op;
}

bool fork_withdraw(struct op *op)
{
	if (fork_of(op)->state >= FORK_COPYING)
		return false;
	op_abandon(op);
	return true;
}

static void on_opened(void *arg, const struct failure *f)
{
	struct fork *fork = arg;

	if (f)
		fail(fork, f);
	else
		part_ready(fork);
}

/* Starts the children of a checkpoint or Space, as fork->config has them. */
static void start_from_space(struct fork *fork, struct space *from)
{
	op_expect(&fork->op, from->owner, fork->n, &fork->config.size);
	list_add_tail(&snapshots_of_service(fork->op.service)->resumes, &fork->op.link);
	fork->seq = from->seq;
	fork->state_seq = from->checkpoint ? from->checkpoint->call_seq : from->seq;
	bool is_open = space_open_start(&fork->open, from, on_opened, fork);
	start(fork, !is_open);
}

/* Returns the checkpoint or Space if sandboxes may start from it; else NULL with *f filled. */
static struct space *find_source(struct service *c, const char *tenant, const char *id,
				 struct failure *f)
{
	struct space *from = space_find(c, tenant, id, f);

	if (!from || !from->resume)
		return from;
	failure_set(f, FAIL_IN_USE, 1, "space %s is being resumed", id);
	return NULL;
}

/* Does what find_source does, and claims room for `n` sandboxes. */
static struct space *claim_source(struct fork *fork, const char *id, unsigned n, struct failure *f)
{
	struct service *c = fork->op.service;
	struct space *from =
		drain_allows(c, f) && check(c, n, f) ? find_source(c, fork->tenant, id, f) : NULL;

	if (!from || !has_room(c, fork->tenant, n, &from->config.size, f))
		return NULL;
	fork->claim = (struct tree_claim){.tree = from->tree,
					  .depth = from->depth + space_is_checkpoint(from),
					  .n = n,
					  .mib = from->config.size.ram_mib};
	return tree_claim(&fork->claim, f) ? from : NULL;
}

struct op *service_fork_from(struct service *c, const char *tenant, const char *id,
			     const struct fork_spec *spec, service_fork_fn *fn, void *arg)
{
	struct fork *fork = fork_new(c, tenant, arg);
	struct failure f;

	fork->fn = fn;
	struct space *from = claim_source(fork, id, spec->n, &f);
	if (!from)
		return refuse(fork, &f);
	fork->config = from->config;
	tenant_clamp(c, tenant, &fork->config);
	note_spec(fork, spec);
	start_from_space(fork, from);
	return &fork->op;
}

/* Returns the strings one after the other, each with its NUL; NULL when they are too long. */
static char *env_block(const char *const *env, size_t *len)
{
	size_t at = 0;

	*len = 0;
	for (const char *const *each = env; *each; each++)
		*len += strlen(*each) + 1;
	if (*len > SANDBOX_ENV_MAX)
		return NULL;
	char *block = must_alloc(*len + 1);
	for (const char *const *each = env; *each; each++) {
		memcpy(block + at, *each, strlen(*each) + 1);
		at += strlen(*each) + 1;
	}
	return block;
}

static bool size_fits(const struct size *asked, const struct size *has)
{
	return (!asked->vcpus || asked->vcpus == has->vcpus) &&
	       (!asked->ram_mib || asked->ram_mib == has->ram_mib) &&
	       (!asked->rootfs_gb || asked->rootfs_gb == has->rootfs_gb);
}

static bool fits(const struct space *from, const struct sandbox_config *asked, struct failure *f)
{
	const struct size *has = &from->config.size;

	if (size_fits(&asked->size, has) &&
	    (!asked->template[0] || !strcmp(asked->template, from->config.template)))
		return true;
	failure_set(f, FAIL_OUT_OF_RANGE, 0,
		    "a sandbox of checkpoint %s has its template %s, %u vCPUs, %u MiB of RAM and a "
		    "disk of %u GB, which can't be changed",
		    from->id, from->config.template, has->vcpus, has->ram_mib, has->rootfs_gb);
	return false;
}

/* Applies what a request to create a sandbox says. */
static bool apply(struct fork *fork, const struct space *from, const struct sandbox_spec *spec,
		  struct failure *f)
{
	const struct sandbox_config *asked = &spec->config;

	if (!fits(from, asked, f))
		return false;
	if (spec->tree) {
		failure_set(f, FAIL_OUT_OF_RANGE, 0,
			    "a sandbox of checkpoint %s is in tree %s, which can't get another "
			    "budget",
			    from->id, from->tree->root);
		return false;
	}
	fork->config = from->config;
	if (asked->timeout_s)
		fork->config.timeout_s = asked->timeout_s;
	if (asked->idle_timeout_s)
		fork->config.idle_timeout_s = asked->idle_timeout_s;
	fork->config.persistent = asked->persistent;
	fork->config.checkpoint_calls = asked->checkpoint_calls;
	fork->config.egress &= asked->egress;
	tenant_clamp(fork->op.service, fork->tenant, &fork->config);
	fork->metadata = copy_of(spec->metadata);
	if (spec->env)
		fork->env = env_block(spec->env, &fork->env_len);
	if (!spec->env || fork->env)
		return true;
	failure_set(f, FAIL_OUT_OF_RANGE, 0, "env has more than the limit of %u bytes",
		    SANDBOX_ENV_MAX);
	return false;
}

struct op *service_create_from(struct service *c, const char *tenant, const char *id,
			       const struct sandbox_spec *spec, service_create_fn *fn, void *arg)
{
	struct fork *fork = fork_new(c, tenant, arg);
	struct failure f;

	fork->created_fn = fn;
	struct space *from = claim_source(fork, id, 1, &f);
	if (!from || !apply(fork, from, spec, &f))
		return refuse(fork, &f);
	note_spec(fork, &(struct fork_spec){.n = 1, .reseed = true, .labels = spec->labels});
	start_from_space(fork, from);
	return &fork->op;
}

/* Returns whether there is room for the second VM that the sandbox has until its present one ends.
 * The limits of the tier are exceeded for at most as many VMs as the tenant has sandboxes. */
static bool second_fits(struct service *c, const struct sandbox *s, struct failure *f)
{
	const struct tenant *t = s->owner;

	if (t->coming < t->sandboxes.n)
		return host_has_room(c, 1, f) && promises_have_room(c, s->config.size.ram_mib, f);
	return has_room(c, s->tenant, 1, &s->config.size, f);
}

bool fork_into_fits(struct service *c, const char *tenant, const char *checkpoint, const char *id,
		    struct failure *f)
{
	const struct sandbox *s = check(c, 1, f) ? sandbox_find_reached(c, tenant, id, f) : NULL;
	const struct space *from = s ? find_source(c, tenant, checkpoint, f) : NULL;

	if (!from)
		return false;
	if (size_equal(&s->config.size, &from->config.size) &&
	    !strcmp(s->config.template, from->config.template))
		return second_fits(c, s, f);
	failure_set(f, FAIL_OUT_OF_RANGE, 0,
		    "sandbox %s can't be rolled back to checkpoint %s, which has another size or "
		    "template",
		    s->id, from->id);
	return false;
}

struct op *fork_into(struct service *c, const char *tenant, const char *checkpoint, const char *id,
		     service_done_fn *fn, void *arg)
{
	struct fork *fork = fork_new(c, tenant, arg);
	struct failure f;

	fork->op.done_fn = fn;
	snprintf(fork->into, sizeof(fork->into), "%s", id);
	if (!fork_into_fits(c, tenant, checkpoint, id, &f))
		return refuse(fork, &f);
	const struct sandbox *s = sandbox_living(c, tenant, id);
	struct space *from = space_of(c, checkpoint);
	fork->config = s->config;
	fork->config.checkpoint_calls = 0;
	fork->config.egress = s->config.egress && from->config.egress;
	/* Nothing is claimed: the sandbox's present VM makes room. */
	fork->claim = (struct tree_claim){.tree = from->tree, .depth = from->depth};
	note_spec(fork, &(struct fork_spec){.n = 1});
	start_from_space(fork, from);
	return &fork->op;
}
