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
 * started in this way. Instead of step 4, its VM is given to the sandbox that is rolled back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/random.h"
#include "base/state-machine.h"
#include "orchestrator/images/disk-layer.h"
#include "orchestrator/images/host.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/snapshot/fork-op.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-files.h"

/* A fork copies the running calls for each child. This limits the bytes of long unfinished lines in
 * all these copies together and, as a separate limit, those of unfinished results. */
#define HELD_MOST (64u << 20)

#define GETS_NONE "gets no checkpoint" /* how an error continues for a sandbox at a limit */

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

void fork_step(struct fork *fork, enum fork_event event)
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

/* Allows the parent's next snapshot. */
static void allow_next(struct fork *fork)
{
	snapshots_of(fork->parent)->copying = NULL;
	sandbox_schedule(fork->parent);
}

/* Does the same, and reads the parent's output again. */
static void release_parent(struct fork *fork)
{
	allow_next(fork);
	exec_hold(fork->parent, false);
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
	tenant_wait_end(&fork->wait);
	leave_freeze(fork);
	disk_job_cancel(fork->layers);
	disk_close(op->service->loop, &fork->writable);
	if (fork->request)
		vmproc_request_cancel(fork->request);
	if (fork->state == FORK_COPYING)
		release_parent(fork);
	else if (fork->state == FORK_CHILDREN && fork->parent &&
		 snapshots_of(fork->parent)->copying == op)
		allow_next(fork);
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
		fork->taker->checkpoints--;
	tenant_put(fork->taker);
}

struct op *fork_fail(struct fork *fork, const struct failure *f)
{
	snapshots_of_service(fork->op.service)->fork_failures++;
	return op_finish(&fork->op, f);
}

/* --- children ------------------------------------------------------------------------------- */

static void fail_all(struct fork *fork)
{
	const struct space *from = fork->open.space;
	struct failure f;

	failure_set(&f, FAIL_VM_FAILED, 5, "no sandbox could be started from %s %s: %.160s",
		    space_noun(from->id), from->id, fork->children[0].error);
	fork_fail(fork, &f);
}

/* Gives the only child's VM to the sandbox that is rolled back. */
static void roll_back(struct fork *fork)
{
	struct child *child = &fork->children[0];
	struct failure f;
	struct sandbox *s = sandbox_find_reached(fork->op.service, fork->tenant, fork->into, &f);

	if (!s || !merge_rolled_back(s, child->sandbox, &child->ready, fork->open.space, &f)) {
		fork_fail(fork, &f);
		return;
	}
	child->sandbox = NULL;
	fork_step(fork, FORK_USABLE);
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

/* Closes the network of the only child's VM, and then calls complete() again. */
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

	if (!tree_claim_stands(&fork->claim, &f)) {
		fork_fail(fork, &f);
		return;
	}
	if (must_close(fork)) {
		close_first(fork);
		return;
	}
	int n = fork_make_rows(fork, rows);
	if (n == 0) {
		fail_all(fork);
		return;
	}
	if (n < 0) {
		failure_no_memory(&f);
		fork_fail(fork, &f);
		return;
	}
	fork_note_stats(fork);
	if (fork->into[0]) {
		roll_back(fork);
		return;
	}
	if (fork_record(fork, rows, n, &e) < 0) {
		failure_catalogue(&f, &e);
		fork_fail(fork, &f);
	} else {
		fork_begin(fork, n);
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
	fork_fail(fork, &f);
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

static void on_more_space(void *arg, const struct failure *f);

/* Returns whether the tenant's limit has room for the snapshot. Otherwise the checkpoint fails, or
 * waits for the tenant's keeper; the parent's next snapshot waits, too, since the order of
 * checkpoints is that of their snapshots. */
static bool may_keep(struct fork *fork, uint64_t bytes)
{
	struct failure f;

	if (space_has_room(fork->parent, bytes, GETS_NONE, &f))
		return true;
	if (tenant_wait_for(&fork->wait, fork->parent->owner, &f, on_more_space, fork))
		snapshots_of(fork->parent)->copying = &fork->op;
	else
		fork_fail(fork, &f);
	return false;
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
					 .history_n = fork->history_n,
					 .guest_busy = fork->guest_busy};
	struct failure f;

	if (!may_keep(fork, taken.bytes))
		return;
	fork->image = NULL;
	random_id(taken.id, sizeof(taken.id), CHECKPOINT_ID_PREFIX);
	const struct space *p = checkpoint_add(
		fork->parent, &fork->take, &taken,
		op_answer(&fork->op, fork->tenant, MADE_CHECKPOINT, taken.id, &answer), &f);
	if (!p) {
		fork_fail(fork, &f);
		return;
	}
	fork_step(fork, FORK_USABLE);
	memcpy(fork->taken, p->id, sizeof(fork->taken));
	sandbox_touch(fork->parent);
	op_finish(&fork->op, NULL);
}

static void on_more_space(void *arg, const struct failure *f)
{
	struct fork *fork = arg;

	allow_next(fork);
	if (f)
		fork_fail(fork, f);
	else
		keep(fork);
}

static void on_copied(void *arg, int error, const char *text, struct vmproc_image *image)
{
	struct fork *fork = arg;
	struct failure f;

	fork->request = NULL;
	if (error) {
		failure_set(&f, FAIL_FORK_FAILED, fork_retry_s(error),
			    "the VM could not be copied: %.180s", text);
		fork_fail(fork, &f);
		return;
	}
	fork_step(fork, FORK_COPIED);
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

/* Delivers long unfinished lines of the parent in parts, as if memory were short, since each child
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

	fork_step(fork, FORK_COPY);
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
	fork_fail(fork, &f);
}

void fork_start_waiting(struct sandbox *s)
{
	if (snapshots_of(s)->copying)
		return;
	list_each_of (op, struct op, link, &snapshots_of(s)->forks) {
		if (fork_of(op)->state != FORK_WAITING)
			continue;
		copy(fork_of(op));
		return;
	}
}

void fork_sandbox_gone(struct sandbox *s, const struct failure *f)
{
	list_each_of_safe (op, struct op, link, &snapshots_of(s)->forks)
		fork_fail(fork_of(op), f);
}

/* --- blank VMs and layers ------------------------------------------------------------------- */

void fork_part_ready(struct fork *fork)
{
	if (--fork->missing)
		return;
	if (fork->parent) {
		fork_step(fork, FORK_PARTS_READY);
		sandbox_schedule(fork->parent);
	} else {
		fork_step(fork, FORK_OPENED);
		fork->guest_busy = fork->open.guest_busy;
		start_children(fork, fork->open.image);
	}
}

static void on_blank_ready(void *arg)
{
	struct child *child = arg;

	child->is_ready = true;
	fork_part_ready(child->fork);
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
			fork_part_ready(fork);
		return;
	}
	failure_set(&f, FAIL_VM_FAILED, 5, "a VM for the child could not be started: %.180s",
		    reason);
	fork_fail(fork, &f);
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
		fork_fail(fork, &f);
		return;
	}
	if (fork->parent)
		fork->writable = take_fd(&layers->fds[fork->n]);
	for (unsigned i = 0; i < fork->n; i++)
		fork->children[i].writable = take_fd(&layers->fds[i]);
	fork_part_ready(fork);
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
		fork_part_ready(fork);
}

/* --- the call ------------------------------------------------------------------------------- */

bool fork_check(struct service *c, unsigned n, struct failure *f)
{
	if (c->closing) {
		failure_set(f, FAIL_STOPPING, 5, "the service is stopping");
		return false;
	}
	if (n < 1 || n > c->config.fork_max) {
		failure_set(f, FAIL_OUT_OF_RANGE, 0, "n must be from 1 to %u, not %u",
			    c->config.fork_max, n);
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

bool fork_has_room(struct service *c, const char *tenant, unsigned n, const struct size *size,
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
		op_notify_made(op, fork->tenant, fork->children ? fork->children[0].id : NULL,
			       fork->created_fn);
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

struct fork *fork_new(struct service *c, const char *tenant, void *arg)
{
	struct fork *fork = fork_of(op_new(c, &fork_ops, arg));

	fork->writable = -1;
	fork->tenant = must_copy(tenant);
	return fork;
}

void fork_note_spec(struct fork *fork, const struct fork_spec *spec)
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

void fork_start(struct fork *fork, unsigned more)
{
	struct service *c = fork->op.service;

	fork_step(fork, FORK_GRANTED);
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
	fork_start(fork, 0);
}

static void on_granted(void *arg, const struct failure *f)
{
	struct fork *fork = arg;
	struct failure full;

	leave_freeze(fork); /* room came from elsewhere */
	if (f || !fork_has_room(fork->op.service, fork->tenant, fork->n, &fork->config.size, &full))
		fork_fail(fork, f ? f : &full);
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
		fork_fail(fork, f);
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
	struct sandbox *s = fork_check(c, spec->n, &f) ? sandbox_find(c, tenant, id, &f) : NULL;
	if (s)
		fork->claim = (struct tree_claim){.tree = s->tree,
						  .node = s,
						  .depth = s->depth + 1,
						  .n = spec->n,
						  .mib = s->config.size.ram_mib,
						  .claimant = &claimant,
						  .arg = fork};
	if (!s || !fork_has_room(c, tenant, spec->n, &s->config.size, &f) ||
	    !tree_claim(&fork->claim, &f))
		return fork_fail(fork, &f);
	fork->parent = s;
	fork->config = s->config;
	fork_note_spec(fork, spec);
	list_add_tail(&snapshots_of(s)->forks, &fork->op.link);
	if (fork->claim.granted)
		start_from_parent(fork);
	return &fork->op;
}

/* --- checkpoints ---------------------------------------------------------------------------- */

bool fork_may_take(const struct sandbox *s, struct failure *f)
{
	return tenant_has_checkpoint(s->owner, f) && space_has_room(s, 1, GETS_NONE, f) &&
	       host_has_room(s->service, 0, f);
}

/* Begins to take the checkpoint, waits for the tenant's keeper, or fails. */
static void take(void *arg, const struct failure *f)
{
	struct fork *fork = arg;
	struct tenant *t = fork->parent->owner;
	struct failure full;

	if (f) {
		fork_fail(fork, f);
	} else if (fork_may_take(fork->parent, &full)) {
		fork->taker = tenant_hold(t);
		t->checkpoints++;
		sandbox_touch(fork->parent);
		fork_start(fork, 0);
	} else if (!tenant_wait_for(&fork->wait, t, &full, take, fork)) {
		fork_fail(fork, &full);
	}
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
	if (!s)
		return fork_fail(fork, &f);
	fork->parent = s;
	fork->config = s->config;
	fork->take = *spec;
	fork->take.name = copy_of(spec->name);
	fork->take.labels = copy_of(spec->labels);
	list_add_tail(&snapshots_of(s)->forks, &fork->op.link);
	take(fork, NULL);
	return &fork->op;
}

bool fork_withdraw(struct op *op)
{
	if (fork_of(op)->state >= FORK_COPYING)
		return false;
	op_abandon(op);
	return true;
}
