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
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
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
#include "orchestrator/snapshot/internal.h"

/* Maximum bytes, in all copies that a fork makes of the running calls, of long unfinished lines,
 * and of unfinished results. */
#define HELD_MOST (64u << 20)

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
	FORK_COPY,
	FORK_COPIED,
	FORK_USABLE, /* all children */
	FORK_NEVENTS,
};

/* A fork that fails is freed, in any state. */
static const uint8_t next[FORK_NSTATES][FORK_NEVENTS] = {
	[FORK_ROOM] = {[FORK_GRANTED] = STATE_TO(FORK_BLANKS)},
	[FORK_BLANKS] = {[FORK_PARTS_READY] = STATE_TO(FORK_WAITING)},
	[FORK_WAITING] = {[FORK_COPY] = STATE_TO(FORK_COPYING)},
	[FORK_COPYING] = {[FORK_COPIED] = STATE_TO(FORK_CHILDREN)},
	[FORK_CHILDREN] = {[FORK_USABLE] = STATE_TO(FORK_MADE)},
};
static const struct state_machine machine = STATE_MACHINE("fork", next);

struct child {
	struct fork *fork;
	struct vmproc *blank;	    /* until the snapshot is complete */
	int writable;		    /* its disk layer, until the snapshot is complete */
	struct vm_bringup *bringup; /* from the snapshot on, until all children are usable */
	struct ready_vm ready;	    /* once all are usable */
	struct sandbox *sandbox;    /* until it is in the catalogue */
	char id[SANDBOX_ID_LEN + 1];
};

struct fork {
	struct op op;
	service_fork_fn *fn;
	struct sandbox *parent; /* valid until FORK_MADE: a parent that ends fails its forks */
	enum fork_state state;
	struct tree_claim claim;
	struct op *freeze; /* of a leaf, to make room; or NULL */
	char *labels;
	bool reseed;
	unsigned n, missing; /* children; blank VMs, layers or children still awaited */
	struct child *children;
	struct disk_job *layers; /* being opened */
	int writable;		 /* the parent's next disk layer */
	struct vmproc_request *request;
	struct vmproc_image *image;
	/* The service's state of the parent when the snapshot was taken. */
	struct exec_point point;
	struct replay replay;
	uint64_t seq;
	bool guest_busy;
	struct sandbox_config config; /* of the children: the parent's when they were started */
	char *tenant;
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
}

/* Allows the parent's next snapshot, and reads the parent's output again. */
static void release_parent(struct fork *fork)
{
	struct sandbox *s = fork->parent;

	snapshots_of(s)->copying = NULL;
	exec_hold(s, false);
	sandbox_schedule(s);
}

static void fork_put_away(struct op *op)
{
	struct fork *fork = fork_of(op);

	tree_claim_drop(&fork->claim);
	if (fork->freeze)
		op_abandon(fork->freeze);
	disk_job_cancel(fork->layers);
	disk_close(op->service->loop, &fork->writable);
	if (fork->request)
		vmproc_request_cancel(fork->request);
	if (fork->state == FORK_COPYING)
		release_parent(fork);
	for (unsigned i = 0; i < fork->n; i++)
		child_fini(&fork->children[i]);
	vmproc_image_put(fork->image);
	exec_point_fini(&fork->point);
	replay_fini(&fork->replay);
	free(fork->children);
	free(fork->tenant);
	free(fork->labels);
}

static void fail(struct fork *fork, const struct failure *f)
{
	snapshots_of_service(fork->op.service)->fork_failures++;
	op_finish(&fork->op, f);
}

/* --- children ------------------------------------------------------------------------------- */

/* Returns a child that is complete except for the VM, or NULL without memory. */
static struct sandbox *sandbox_of(struct fork *fork)
{
	struct sandbox *p = fork->parent, *s = sandbox_new(p->service, "", p->tenant);

	free(s->ancestors);
	s->ancestors = lineage_of_child(p);
	s->config = fork->config;
	s->tree = tree_hold(p->tree);
	s->depth = p->depth + 1;
	s->seq = fork->seq;
	exec_of(s)->main.guest_busy = fork->guest_busy;
	sandbox_set_env(s, p->env, p->env_len);
	if (sandbox_set_metadata(s, p->metadata) && sandbox_set_labels(s, fork->labels) &&
	    replay_copy(&exec_of(s)->replay, &fork->replay) == 0 && exec_copy(s, &fork->point) == 0)
		return s;
	sandbox_free(s);
	return NULL;
}

/* Makes a child exactly as old as its sibling: merges of files tell forks apart by their times. */
static void take_times(struct sandbox *s, const struct sandbox *sibling)
{
	s->created_at_ms = sibling->created_at_ms;
	s->expires_at_ms = sibling->expires_at_ms;
	s->expires_ms = sibling->expires_ms;
}

static bool make_rows(struct fork *fork, struct store_sandbox *rows)
{
	for (unsigned i = 0; i < fork->n; i++) {
		struct child *child = &fork->children[i];

		child->sandbox = sandbox_of(fork);
		if (!child->sandbox)
			return false;
		child->ready = vm_bringup_take(child->bringup);
		child->bringup = NULL;
		memcpy(child->id, child->ready.id, sizeof(child->id));
		sandbox_note_vm(child->sandbox, &child->ready);
		take_times(child->sandbox, fork->children[0].sandbox);
		rows[i] = sandbox_row(child->sandbox);
	}
	return true;
}

static void note_stats(struct fork *fork)
{
	struct service_forked *made = &fork->made;

	for (unsigned i = 0; i < fork->n; i++) {
		uint64_t ready_us = (fork->children[i].ready.running_ns - fork->began_ns) / 1000;

		if (ready_us > made->ready_us)
			made->ready_us = ready_us;
	}
	made->pause_us = fork->image->pause_ns / 1000;
	made->copied_bytes = fork->image->copied_bytes;
}

static void begin(struct fork *fork)
{
	struct service *c = fork->op.service;

	step(fork, FORK_USABLE);
	snapshots_of_service(c)->forks++;
	log_info("sandbox %s: forked into %u, its VM was paused for %llu us, %llu KiB copied",
		 fork->parent->id, fork->n, (unsigned long long)fork->made.pause_us,
		 (unsigned long long)fork->made.copied_bytes >> 10);
	sandbox_touch(fork->parent);
	tree_claim_drop(&fork->claim);
	vmproc_image_put(fork->image);
	fork->image = NULL;
	for (unsigned i = 0; i < fork->n; i++) {
		struct child *child = &fork->children[i];
		struct sandbox *s = child->sandbox;

		child->sandbox = NULL;
		sandbox_begin(s, &child->ready);
	}
	pool_rest(fork->op.service->pool, SANDBOX_HEAD_START_MS);
	op_finish(&fork->op, NULL);
}

/* Adds the children to the catalogue, with the request's key if it has one. */
static int record(struct fork *fork, struct store_sandbox *rows, struct err *e)
{
	scoped_free char *ids = must_alloc(fork->n * sizeof(fork->children[0].id));
	struct store_answer answer = {0};
	size_t len = 0;

	for (unsigned i = 0; i < fork->n; i++)
		len += (size_t)sprintf(ids + len, "%s%s", i ? " " : "", fork->children[i].id);
	rows[0].answer = op_answer(&fork->op, fork->tenant, MADE_CHILDREN, ids, &answer);
	answer.pause_us = fork->made.pause_us;
	answer.ready_us = fork->made.ready_us;
	answer.copied_bytes = fork->made.copied_bytes;
	for (unsigned i = 0; i < fork->n; i++)
		life_note(
			fork->children[i].sandbox,
			(struct audit_event){.name = "sandbox.forked", .parent = fork->parent->id});
	return store_sandboxes_add(fork->op.service->store, rows, fork->n, e);
}

static void complete(struct fork *fork)
{
	scoped_free struct store_sandbox *rows = must_alloc(fork->n * sizeof(*rows));
	struct failure f;
	struct err e;

	if (!make_rows(fork, rows)) {
		failure_set(&f, FAIL_NO_MEMORY, 5, "the service has no memory for the request");
		fail(fork, &f);
		return;
	}
	note_stats(fork);
	if (record(fork, rows, &e) < 0) {
		failure_set(&f, FAIL_CATALOGUE, 5, "%s", e.text);
		fail(fork, &f);
	} else {
		begin(fork);
	}
}

static void on_bringup(void *arg, struct vm_bringup *w, const char *text)
{
	struct child *child = arg;
	struct fork *fork = child->fork;
	struct failure f;

	if (w) {
		if (--fork->missing == 0)
			complete(fork);
		return;
	}
	child->bringup = NULL;
	failure_set(&f, FAIL_VM_FAILED, 5, "one of %u children could not be started: %.180s",
		    fork->n, text);
	fail(fork, &f);
}

static void start_children(struct fork *fork)
{
	fork->missing = fork->n;
	fork->config = fork->parent->config;
	for (unsigned i = 0; i < fork->n; i++) {
		struct child *child = &fork->children[i];
		const struct vm_bringup_spec spec = {.size = fork->config.size,
						     .image = fork->image,
						     .blank = child->blank,
						     .writable = take_fd(&child->writable),
						     .closed = !fork->config.egress,
						     .user_generators = fork->reseed};

		child->blank = NULL;
		child->bringup =
			vm_bringup_start(&fork->op.service->template_env, &spec, on_bringup, child);
	}
}

/* --- the snapshot --------------------------------------------------------------------------- */

/* -E2BIG lasts until children of earlier forks end, -ENOTSUP forever. */
unsigned fork_retry_s(int error)
{
	return error == -E2BIG || error == -ENOTSUP ? 0 : 5;
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
	start_children(fork);
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
	fork->guest_busy = exec_of(s)->main.guest_busy;
	int ret = exec_note(s, &fork->point);
	return ret < 0 ? ret : replay_copy(&fork->replay, &exec_of(s)->replay);
}

/* Delivers long unfinished lines of the parent in parts, as if memory was short, since each child
 * would get a copy of them. Returns false when a reader of these parts has ended the fork. */
static bool cut_lines(struct op *op)
{
	struct sandbox *s = fork_of(op)->parent;
	const unsigned n = fork_of(op)->n;

	while (snapshots_of(s)->copying == op && n * exec_lines(s) > HELD_MOST &&
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
	if (fork->n * exec_point_results(&fork->point) > HELD_MOST)
		exec_point_drop_results(&fork->point);
	if (ret == 0) {
		fork->request =
			vmproc_fork(s->vm, fork->n, take_fd(&fork->writable), on_copied, fork);
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
	step(fork, FORK_PARTS_READY);
	sandbox_schedule(fork->parent);
}

static void on_blank_ready(void *arg)
{
	struct child *child = arg;

	part_ready(child->fork);
}

static void on_blank_died(void *arg, const char *reason)
{
	struct child *child = arg;
	struct failure f;

	failure_set(&f, FAIL_VM_FAILED, 5, "a VM for the child could not be started: %.180s",
		    reason);
	fail(child->fork, &f);
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
	fork->writable = take_fd(&layers->fds[fork->n]);
	for (unsigned i = 0; i < fork->n; i++)
		fork->children[i].writable = take_fd(&layers->fds[i]);
	part_ready(fork);
}

static void take_blanks(struct fork *fork)
{
	struct service *c = fork->op.service;
	const struct size *size = &fork->parent->config.size;
	struct vmproc_spec spec = size_vm_spec(size, false);
	unsigned ready = 0;

	for (unsigned i = 0; i < fork->n; i++) {
		struct child *child = &fork->children[i];

		child->blank = pool_take_blank(c->pool, size);
		if (!child->blank)
			break;
		vmproc_set_owner(child->blank, &blank_owner, child);
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

static void fork_notify(struct op *op)
{
	struct fork *fork = fork_of(op);

	if (op->failed) {
		fork->fn(op->arg, NULL, &op->failure);
		return;
	}
	scoped_free const char **ids = must_alloc(fork->n * sizeof(*ids));
	for (unsigned i = 0; i < fork->n; i++)
		ids[i] = fork->children[i].id;
	fork->made.ids = ids;
	fork->made.n = fork->n;
	fork->fn(op->arg, &fork->made, NULL);
}

/* Deletes the children: the client never received their ids. */
static void fork_abandon(struct op *op)
{
	struct fork *fork = fork_of(op);

	for (unsigned i = 0; fork->state == FORK_MADE && i < fork->n; i++) {
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

static bool has_room(struct service *c, const struct sandbox *s, unsigned n, struct failure *f)
{
	return tenant_has_room(c, s->tenant, n, f) && host_has_room(c, n, f) &&
	       tenant_has_disk(c, s->tenant, (uint64_t)n * s->config.size.rootfs_gb, f) &&
	       promises_have_room(c, (uint64_t)n * s->config.size.ram_mib, f);
}

static void start(struct fork *fork)
{
	struct service *c = fork->op.service;
	struct sandbox *s = fork->parent;

	step(fork, FORK_GRANTED);
	fork->began_ns = now_ns();
	op_expect(&fork->op, s->owner, fork->n, &s->config.size);
	sandbox_touch(s);
	fork->layers = disk_layers_open(c->loop, c->config.state_dir, fork->n + 1, on_layers, fork);
	take_blanks(fork);
}

static void on_granted(void *arg, const struct failure *f)
{
	struct fork *fork = arg;
	struct failure full;

	if (f || !has_room(fork->op.service, fork->parent, fork->n, &full))
		fail(fork, f ? f : &full);
	else
		start(fork);
}

/* A leaf is frozen, or has ended in another way. */
static void on_leaf_frozen(void *arg, const char *space, const struct failure *f)
{
	struct fork *fork = arg;

	fork->freeze = NULL;
	if (fork->state != FORK_ROOM)
		return;
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
	const unsigned n = spec->n;
	struct fork *fork = fork_of(op_new(c, &fork_ops, arg));
	struct failure f;

	fork->fn = fn;
	fork->writable = -1;
	struct sandbox *s = check(c, n, &f) ? sandbox_find(c, tenant, id, &f) : NULL;
	if (s)
		fork->claim = (struct tree_claim){.tree = s->tree,
						  .node = s,
						  .n = n,
						  .mib = s->config.size.ram_mib,
						  .claimant = &claimant,
						  .arg = fork};
	if (!s || !has_room(c, s, n, &f) || !tree_claim(&fork->claim, &f)) {
		snapshots_of_service(c)->fork_failures++;
		op_finish(&fork->op, &f);
		return &fork->op;
	}
	fork->parent = s;
	fork->reseed = spec->reseed;
	fork->labels = must_copy(spec->labels ? spec->labels : "{}");
	fork->n = n;
	fork->missing = n + 1;
	fork->children = must_alloc(n * sizeof(*fork->children));
	for (unsigned i = 0; i < n; i++)
		fork->children[i] = (struct child){.fork = fork, .writable = -1};
	fork->tenant = must_copy(tenant);
	list_add_tail(&snapshots_of(s)->forks, &fork->op.link);
	if (fork->claim.granted)
		start(fork);
	return &fork->op;
}
