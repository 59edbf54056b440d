// SPDX-License-Identifier: Apache-2.0
/*
 * Freezes a sandbox:
 * 1. Its VM takes a snapshot of itself and stays paused. In a fleet, the tenant's keeper is asked
 *    if this host has no room left for it.
 * 2. Worker threads write the snapshot to disk as a Space.
 * 3. One transaction in the catalogue replaces the sandbox by the Space, and the VM is dropped.
 * A failure before the end of step 3 removes the files, and the VM continues. A power failure that
 * loses the transaction also ends the VM, and leaves a directory that was never reported to
 * anybody.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/random.h"
#include "base/state-machine.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/images/disk-layer.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/catalogue.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-files.h"

/* Number of slots. A freeze has one while its snapshot is taken and written. Tenants get slots in
 * turn. */
#define AT_ONCE 2

enum freeze_state {
	FREEZE_WAITING, /* for a slot, the disk layer, and the end of a fork's snapshot */
	FREEZE_IMAGE,	/* the VM process takes the snapshot */
	FREEZE_WRITING, /* or waiting for the tenant's keeper, before that */
	FREEZE_THAWING, /* the freeze failed, and the VM is being resumed */
	FREEZE_SYNCING, /* the Space exists; waits until the catalogue is on disk */
	FREEZE_NSTATES,
};

enum freeze_event {
	FREEZE_BEGIN,
	FREEZE_WRITE, /* the snapshot is complete */
	FREEZE_THAW,
	FREEZE_COMMIT,
	FREEZE_NEVENTS,
};

/* A freeze that fails before it has a snapshot is freed at once. */
static const uint8_t next[FREEZE_NSTATES][FREEZE_NEVENTS] = {
	[FREEZE_WAITING] = {[FREEZE_BEGIN] = STATE_TO(FREEZE_IMAGE)},
	[FREEZE_IMAGE] = {[FREEZE_WRITE] = STATE_TO(FREEZE_WRITING)},
	[FREEZE_WRITING] = {[FREEZE_THAW] = STATE_TO(FREEZE_THAWING),
			    [FREEZE_COMMIT] = STATE_TO(FREEZE_SYNCING)},
};
static const struct state_machine machine = STATE_MACHINE("freeze", next);

struct freeze {
	struct list link; /* on snapshot_service.freezes */
	struct service *service;
	struct sandbox *sandbox; /* NULL from FREEZE_SYNCING on */
	struct tenant *owner;
	struct list waiting; /* on the owner's snapshot_tenant.freezes */
	bool has_slot;
	struct loop_timer slot_limit;
	struct list calls; /* operations that wait for the result */
	enum freeze_state state;
	char id[SANDBOX_ID_LEN + 1];
	struct exec_point call;
	uint64_t seq;
	bool guest_busy;
	struct disk_job *layer;	    /* being opened */
	int writable;		    /* the VM's next disk layer */
	struct err layer_err;	    /* why `writable` is missing */
	struct vmproc_image *image; /* until it is being written */
	struct tenant_wait wait;
	uint64_t coming_bytes; /* counted for the tenant: room that is set aside for the Space */
	struct space_write *write; /* in progress */
	struct catalogue_sync *sync;
};

struct freeze_op {
	struct op op;
	service_id_fn *fn;
	char space[SANDBOX_ID_LEN + 1]; /* the new Space's id; empty until it is made */
};

static void step(struct freeze *fr, enum freeze_event event)
{
	fr->state = (enum freeze_state)state_after(&machine, fr->state, event);
}

static struct freeze_op *freeze_op_of(const struct op *op)
{
	return container_of(op, struct freeze_op, op);
}

/* --- slots, tenants in turn ----------------------------------------------------------------- */

static void wait_for_turn(struct freeze *fr)
{
	struct snapshot_tenant *of = snapshots_of_tenant(fr->owner);

	of->tenant = fr->owner;
	if (list_empty(&of->freezes))
		list_add_tail(&snapshots_of_service(fr->service)->freeze_turns, &of->freeze_turn);
	list_add_tail(&of->freezes, &fr->waiting);
}

/* Leaves the queue, and moves the tenant to the end of the tenants. */
static void stop_waiting(struct freeze *fr)
{
	struct tenant *t = fr->owner;

	list_del(&fr->waiting);
	list_del(&snapshots_of_tenant(t)->freeze_turn);
	if (!list_empty(&snapshots_of_tenant(t)->freezes))
		list_add_tail(&snapshots_of_service(fr->service)->freeze_turns,
			      &snapshots_of_tenant(t)->freeze_turn);
}

static void release_slot(struct freeze *fr)
{
	loop_timer_clear(fr->service->loop, &fr->slot_limit);
	snapshots_of_service(fr->service)->n_freezing -= fr->has_slot;
	fr->has_slot = false;
}

static void schedule_next(struct service *c);

static void on_slot_limit(void *arg)
{
	struct freeze *fr = arg;

	release_slot(fr);
	schedule_next(fr->service);
}

static void take_slot(struct freeze *fr)
{
	stop_waiting(fr);
	fr->has_slot = true;
	snapshots_of_service(fr->service)->n_freezing++;
	snapshots_of_tenant(fr->owner)->freezing++;
	loop_timer_start(fr->service->loop, &fr->slot_limit, on_slot_limit, fr,
			 snapshots_of_service(fr->service)->slot_limit_ms);
}

static bool is_under_way(const struct freeze *fr)
{
	return fr->state != FREEZE_WAITING && fr->state != FREEZE_SYNCING;
}

/* Releases the slot and the place in the queue or in the tenant's count. */
static void leave(struct freeze *fr)
{
	if (is_under_way(fr))
		snapshots_of_tenant(fr->owner)->freezing--;
	if (fr->state == FREEZE_WAITING)
		stop_waiting(fr);
	release_slot(fr);
}

/* --- freeing -------------------------------------------------------------------------------- */

/* Sets the number of bytes that are counted for the tenant as about to be taken by the Space. */
static void set_aside(struct freeze *fr, uint64_t bytes)
{
	fr->owner->coming_bytes += bytes - fr->coming_bytes;
	fr->coming_bytes = bytes;
}

static void freeze_free(struct freeze *fr)
{
	leave(fr);
	set_aside(fr, 0);
	tenant_wait_end(&fr->wait);
	vmproc_image_put(fr->image);
	tenant_put(fr->owner);
	list_del(&fr->link);
	disk_job_cancel(fr->layer);
	disk_close(fr->service->loop, &fr->writable);
	catalogue_sync_cancel(fr->sync);
	step_job_cancel(fr->write);
	ops_free(&fr->calls);
	exec_point_fini(&fr->call);
	free(fr);
}

void freezes_free(struct service *c)
{
	list_drain_of (fr, struct freeze, link, &snapshots_of_service(c)->freezes)
		freeze_free(fr);
}

static void finish_ops(struct freeze *fr, const struct failure *f)
{
	list_drain_of (op, struct op, link, &fr->calls) {
		if (!f)
			memcpy(freeze_op_of(op)->space, fr->id, SANDBOX_ID_LEN + 1);
		op_finish(op, f);
	}
}

void freeze_sandbox_gone(struct sandbox *s, const struct failure *f)
{
	struct freeze *fr = snapshots_of(s)->freeze;

	snapshots_of(s)->freeze = NULL;
	if (!fr)
		return;
	if (f)
		finish_ops(fr, f);
	struct service *c = fr->service;
	freeze_free(fr);
	if (!f)
		return;
	/* The timer fired once already: set it again, since a merged sandbox stays alive. */
	if (sandbox_is_over(s))
		loop_timer_set(c->loop, &s->lifetime, 0);
	schedule_next(c);
}

/* --- failure: the VM continues -------------------------------------------------------------- */

/* Continues the sandbox and its calls after a failed freeze: its VM runs. */
static void thawed(struct freeze *fr)
{
	struct sandbox *s = fr->sandbox;
	bool running = fr->call.running && !list_empty(&exec_of(s)->main.calls);
	struct service *c = fr->service;

	snapshots_of(s)->freeze = NULL;
	freeze_free(fr);
	sandbox_step(s, SBX_THAW);
	if (running)
		sandbox_step(s, SBX_EXEC);
	exec_hold(s, false);
	if (sandbox_is_over(s)) {
		sandbox_end(s, "expired", "its lifetime is over, and it could not be frozen",
			    false);
	} else {
		sandbox_touch(s);
		exec_dial(s);
		sandbox_schedule(s);
	}
	schedule_next(c);
}

static void on_resumed(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	if (!error) /* else the VM is dead, and its owner is notified next */
		thawed(arg);
}

static void fail_with(struct freeze *fr, const struct failure *f)
{
	struct sandbox *s = fr->sandbox;

	snapshots_of_service(fr->service)->freeze_failures++;
	log_warn("%s", f->text);
	finish_ops(fr, f);
	if (fr->state == FREEZE_WRITING) {
		release_slot(fr);
		step(fr, FREEZE_THAW);
		vmproc_ask(s->vm, CTL_RUN, on_resumed, fr);
		schedule_next(fr->service);
	} else {
		thawed(fr);
	}
}

/* Fails the freeze. A retry may succeed after `retry_s` seconds; 0: waiting does not help. */
static void fail_for(struct freeze *fr, const char *text, unsigned retry_s)
{
	struct failure f;

	failure_set(&f, FAIL_FREEZE_FAILED, retry_s,
		    "sandbox %s can't be frozen and keeps running: %.180s", fr->sandbox->id, text);
	fail_with(fr, &f);
}

static void fail(struct freeze *fr, const char *text)
{
	fail_for(fr, text, 5);
}

/* Returns whether the tenant's limit of disk space has room for the Space, which takes `bytes`. If
 * nobody can say whether it has, a sandbox whose lifetime is over is frozen: it would be lost. */
static bool has_room(const struct freeze *fr, uint64_t bytes, struct failure *f)
{
	return space_has_room(fr->sandbox, bytes, "can't be frozen and keeps running", f) ||
	       (f->lacks && fr->owner->keeper_away && sandbox_is_over(fr->sandbox));
}

/* --- the catalogue -------------------------------------------------------------------------- */

/* Adds the Space to the catalogue, with the keys of the requests that wait for it. */
static int record(struct freeze *fr, struct store_space *row, const char *text, struct err *e)
{
	scoped_free struct store_answer *answers =
		must_alloc((list_count(&fr->calls) + 1) * sizeof(*answers));

	list_each_of (op, const struct op, link, &fr->calls)
		if (op_answer(op, row->tenant, MADE_SPACE, fr->id, &answers[row->n_answers]))
			row->n_answers++;
	row->answers = answers;
	life_note(fr->sandbox, (struct audit_event){.name = "sandbox.frozen", .space = fr->id});
	int ret =
		store_space_freeze(fr->service->store, row, row->created_at_ms, "frozen", text, e);
	row->answers = NULL;
	row->n_answers = 0;
	return ret;
}

static void on_synced(void *arg, int error)
{
	struct freeze *fr = arg;
	struct failure f;

	fr->sync = NULL;
	failure_set(&f, FAIL_CATALOGUE, 0,
		    "the sandbox is frozen as space %s, but this is not on disk yet and a power "
		    "failure may undo it: %s",
		    fr->id, strerror(-error));
	if (error)
		log_error("%s", f.text);
	finish_ops(fr, error ? &f : NULL);
	freeze_free(fr);
}

/* Does what has_room does for the written Space, without what was set aside for it. */
static bool fits(struct freeze *fr, uint64_t bytes, struct failure *f)
{
	const bool is_granted = bytes <= fr->coming_bytes;

	set_aside(fr, 0);
	return has_room(fr, bytes, f) || (is_granted && f->lacks);
}

static void commit(struct freeze *fr, uint64_t bytes)
{
	struct service *c = fr->service;
	struct sandbox *s = fr->sandbox;
	struct store_space row = space_row_new(s, fr->id);
	char text[ERR_TEXT_MAX];
	struct failure f;
	struct err e;

	row.created_at_ms = realtime_ms();
	row.size_bytes = bytes;
	row.seq_reserved = fr->seq;
	row.score = s->score;
	row.labels = s->labels;
	snprintf(text, sizeof(text), "it was frozen as space %s", fr->id);
	if (!fits(fr, bytes, &f)) {
		space_files_drop(c, fr->id);
		f.lacks = 0;
		fail_with(fr, &f);
		return;
	}
	if (record(fr, &row, text, &e) < 0) {
		space_files_drop(c, fr->id);
		fail(fr, e.text);
		return;
	}
	snapshots_of_service(c)->n_frozen++;
	log_info("sandbox %s: frozen as space %s, %llu KiB", s->id, fr->id,
		 (unsigned long long)row.size_bytes >> 10);
	space_checked(space_add(c, &row));
	leave(fr);
	step(fr, FREEZE_COMMIT);
	fr->sandbox = NULL;
	snapshots_of(s)->freeze = NULL;
	sandbox_end_frozen(s, row.created_at_ms, text);
	fr->sync = catalogue_sync(c, on_synced, fr);
	schedule_next(c);
}

/* --- writing -------------------------------------------------------------------------------- */

static void on_written(void *owner, void *job)
{
	struct space_write *w = job;
	struct freeze *fr = owner;

	/* Clients may hang up until the freeze is over, also after the manifest was written: then
	 * one more step writes it again. */
	if (w->job.ret > 0 && exec_note_hang_ups(fr->sandbox, &w->manifest.call)) {
		w->job.ret = 0;
		return;
	}
	fr->write = NULL;
	if (w->job.ret < 0)
		fail(fr, w->job.err.text);
	else
		commit(fr, w->size_bytes);
}

static const struct step_job_ops write_ops = {LOOP_BULK, space_write_step, space_write_undo,
					      on_written, space_write_free};

static void fill_manifest(struct freeze *fr, struct space_manifest *m)
{
	const struct sandbox *s = fr->sandbox;

	memcpy(m->image.name, fr->id, sizeof(fr->id));
	memcpy(m->template, s->config.template, sizeof(m->template));
	m->size = s->config.size;
	m->guest_busy = fr->guest_busy;
	/* The write owns the call's buffers from here on. The freeze only remembers that a call
	 * runs.
	 */
	m->call = fr->call;
	fr->call = (struct exec_point){.running = m->call.running};
}

static void start_writing(struct freeze *fr)
{
	fr->write = space_write_new(fr->service->config.state_dir, fr->sandbox->id, fr->image);
	fr->image = NULL;
	fill_manifest(fr, &fr->write->manifest);
	step_job_start(fr->service->loop, fr->write, &write_ops, fr);
}

static void write_if_allowed(struct freeze *fr, const struct failure *refused);

static void on_more_space(void *arg, const struct failure *refused)
{
	write_if_allowed(arg, refused);
}

/* Asks the tenant's keeper for more room. It is asked only once, because the VM stays paused and
 * the freeze keeps its slot meanwhile. A sandbox whose lifetime is over has time, and would be lost
 * otherwise. For it, the keeper is asked again, since it finds room on few hosts at a time. */
static bool asks_keeper(struct freeze *fr, struct failure *f)
{
	if (fr->wait.times && !sandbox_is_over(fr->sandbox))
		return false;
	return tenant_wait_for(&fr->wait, fr->owner, f, on_more_space, fr);
}

/* Returns whether a Space that may be above the limit is written nevertheless, since it may turn
 * out to be smaller. After the keeper's refusal, only a sandbox that can't go on is written. */
static bool may_fit(const struct freeze *fr)
{
	struct failure f;

	return !fr->wait.times || (sandbox_is_over(fr->sandbox) && has_room(fr, 1, &f));
}

/* Writes the Space if it is within the limit, or may be (may_fit). It takes at most as much as the
 * snapshot, or less because it shares files with checkpoints, so the limit is checked again once
 * the Space is written. `refused`: the keeper's answer, or NULL. */
static void write_if_allowed(struct freeze *fr, const struct failure *refused)
{
	const uint64_t bytes = space_bytes_of(fr->image);
	struct failure f = {0};

	if (has_room(fr, bytes, &f)) {
		set_aside(fr, bytes);
	} else if (asks_keeper(fr, &f)) {
		return;
	} else if (!may_fit(fr)) {
		f.lacks = 0;
		fail_with(fr, refused ? refused : &f);
		return;
	}
	start_writing(fr);
}

static void on_image(void *arg, int error, const char *text, struct vmproc_image *image)
{
	struct freeze *fr = arg;

	loop_timer_clear(fr->service->loop, &fr->slot_limit);
	if (error) {
		fail_for(fr, text, fork_retry_s(error));
		return;
	}
	fr->image = image;
	step(fr, FREEZE_WRITE);
	write_if_allowed(fr, NULL);
}

/* Saves the state of the running call. As for a fork, nothing is read from the guest until the
 * snapshot is complete, so that the call's output is neither lost nor received twice. */
static int note(struct freeze *fr)
{
	struct sandbox *s = fr->sandbox;

	exec_hold(s, true);
	fr->seq = s->seq_reserved;
	fr->guest_busy = exec_of(s)->main.guest_busy;
	return exec_note(s, &fr->call);
}

static void begin(struct freeze *fr)
{
	struct sandbox *s = fr->sandbox;
	struct failure full;
	bool allowed = has_room(fr, 1, &full) || full.lacks;

	take_slot(fr);
	step(fr, FREEZE_BEGIN);
	/* Note the call even without a layer: thawed() must know whether one runs. */
	if (note(fr) < 0 && fr->writable >= 0) {
		disk_close(fr->service->loop, &fr->writable);
		err_say(&fr->layer_err, ENOMEM, "no memory");
	}
	sandbox_step(s, SBX_FREEZE);
	if (!allowed)
		fail_with(fr, &full);
	else if (fr->writable < 0)
		fail(fr, fr->layer_err.text);
	else
		vmproc_freeze(s->vm, take_fd(&fr->writable), on_image, fr);
}

static bool may_begin(const struct freeze *fr)
{
	return !fr->layer && !snapshots_of(fr->sandbox)->copying;
}

/* Returns the first freeze of the tenant that may begin. */
static struct freeze *first_freeze_of(struct tenant *t)
{
	list_each_of (fr, struct freeze, waiting, &snapshots_of_tenant(t)->freezes)
		if (may_begin(fr))
			return fr;
	return NULL;
}

/* Returns the next freeze to begin. A tenant with a slot gets another one only when no other tenant
 * can use it. */
static struct freeze *choose(struct service *c)
{
	struct freeze *second = NULL;

	if (snapshots_of_service(c)->n_freezing >= AT_ONCE)
		return NULL;
	list_each_safe (pos, &snapshots_of_service(c)->freeze_turns) {
		struct tenant *t = container_of(pos, struct snapshot_tenant, freeze_turn)->tenant;
		struct freeze *fr =
			snapshots_of_tenant(t)->freezing < AT_ONCE ? first_freeze_of(t) : NULL;

		if (fr && !snapshots_of_tenant(t)->freezing)
			return fr;
		second = second ? second : fr;
	}
	return second;
}

/* Schedules the sandbox whose freeze is next for a slot. Must be called when a slot becomes free or
 * a freeze leaves the queue. */
static void schedule_next(struct service *c)
{
	struct freeze *fr = choose(c);

	if (fr)
		sandbox_schedule(fr->sandbox);
}

void freeze_start_waiting(struct sandbox *s)
{
	struct service *c = s->service;
	struct freeze *fr = snapshots_of(s)->freeze ? choose(c) : NULL;

	if (!fr)
		return;
	if (fr->sandbox == s)
		begin(fr);
	schedule_next(c);
}

void freeze_sandbox_touched(struct sandbox *s)
{
	struct freeze *fr = snapshots_of(s)->freeze;
	bool still_due = sandbox_is_over(s) && s->config.persistent;

	if (!fr || fr->state != FREEZE_WAITING || !list_empty(&fr->calls) || still_due)
		return;
	snapshots_of(s)->freeze = NULL;
	freeze_free(fr);
	schedule_next(s->service);
}

static void on_layer(void *arg, struct disk_job *layer)
{
	struct freeze *fr = arg;

	fr->layer = NULL;
	fr->layer_err = layer->job.err;
	fr->writable = take_fd(&layer->fds[0]);
	sandbox_schedule(fr->sandbox);
}

void freeze_start(struct sandbox *s, struct op *op)
{
	struct service *c = s->service;
	struct freeze *fr = snapshots_of(s)->freeze;

	if (!fr) {
		fr = must_alloc(sizeof(*fr));
		*fr = (struct freeze){
			.service = c, .sandbox = s, .owner = tenant_hold(s->owner), .writable = -1};
		wait_for_turn(fr);
		random_id(fr->id, sizeof(fr->id), SPACE_ID_PREFIX);
		list_add_tail(&snapshots_of_service(c)->freezes, &fr->link);
		snapshots_of(s)->freeze = fr;
		fr->layer = disk_layers_open(c->loop, c->config.state_dir, 1, on_layer, fr);
	}
	if (op)
		list_add_tail(&fr->calls, &op->link);
}

void freeze_progress(const struct sandbox *s, uint64_t *written, uint64_t *total)
{
	const struct freeze *fr = snapshots_of(s)->freeze;
	const struct space_write *w = fr ? fr->write : NULL;

	*written = w ? atomic_load(&w->written) : 0;
	*total = w ? atomic_load(&w->total) : 0;
}

/* --- the call ------------------------------------------------------------------------------- */

static void freeze_notify(struct op *op)
{
	if (!op->abandoned)
		freeze_op_of(op)->fn(op->arg, op->failed ? NULL : freeze_op_of(op)->space,
				     op->failed ? &op->failure : NULL);
}

static const struct op_methods freeze_ops = {
	.size = sizeof(struct freeze_op),
	.notify = freeze_notify,
};

struct op *service_freeze(struct service *c, const char *tenant, const char *id, service_id_fn *fn,
			  void *arg)
{
	struct op *op = op_new(c, &freeze_ops, arg);
	struct failure f;

	freeze_op_of(op)->fn = fn;
	struct sandbox *s = sandbox_find(c, tenant, id, &f);
	/* A freeze that is under way is joined; only an adopted sandbox must be reached first. */
	if (s && s->state == SBX_ADOPTING)
		sandbox_is_reached(s, &f);
	else if (s && c->closing)
		failure_set(&f, FAIL_STOPPING, 5, "the service is stopping");
	else if (s) {
		freeze_start(s, op);
		return op;
	}
	return op_finish(op, &f);
}
