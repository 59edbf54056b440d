// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints after each call of a sandbox, and the undo of calls. A checkpoint is taken of each
 * state that has no such checkpoint yet, when no call runs or waits in any interpreter of the
 * sandbox and no call has come for a moment. A call that comes before the snapshot has begun
 * overtakes the checkpoint: then no checkpoint is taken of that state.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/snapshot/internal.h"

#define LEFT_MS	       (3600 * 1000) /* age at which checkpoints of an ended sandbox are removed */
#define KEPT_SEQ_OTHER UINT64_MAX    /* of the present state, no checkpoint was tried */

/* Returns the sandbox's checkpoints after calls, oldest first. The first call finds those that a
 * previous instance of the service took. */
static struct list *all_of(const struct sandbox *s)
{
	struct snapshot_sandbox *of = snapshots_of(s);
	const struct roster *all = &snapshots_of_tenant(s->owner)->checkpoints;

	for (size_t i = 0; i < all->n && !of->of_calls_known; i++) {
		struct space *p = container_of(all->all[i], struct space, listed);

		if (p->checkpoint->kind == CHECKPOINT_ASKED || strcmp(p->sandbox, s->id) != 0)
			continue;
		list_del(&p->checkpoint->of_calls);
		list_add_tail(&of->of_calls, &p->checkpoint->of_calls);
	}
	of->of_calls_known = true;
	return &of->of_calls;
}

static struct checkpoint *of_call(struct list *pos)
{
	return container_of(pos, struct checkpoint, of_calls);
}

void each_call_added(struct sandbox *s, struct checkpoint *k)
{
	struct list *all = all_of(s);

	list_del(&k->of_calls);
	list_add_tail(all, &k->of_calls);
}

/* Returns a checkpoint of the `n`th state, or NULL. Counts the states that have checkpoints and
 * that the sandbox's state comes from, back from the newest one, which is state 0. If a state has
 * several checkpoints, returns the newest. */
static struct space *nth_state(const struct sandbox *s, uint32_t n)
{
	const struct checkpoint *newer = NULL;
	struct list *all = all_of(s);

	for (struct list *pos = list_prev(all); pos != all; pos = list_prev(pos)) {
		const struct checkpoint *k = of_call(pos);

		if (k->kind != CHECKPOINT_OF_CALL || (newer && k->call_seq == newer->call_seq))
			continue;
		if (n-- == 0)
			return k->space;
		newer = k;
	}
	return NULL;
}

uint64_t each_call_state(const struct sandbox *s)
{
	const struct given_state *given = &snapshots_of(s)->given;

	return s->seq == given->seq ? given->state : s->seq;
}

/* Returns whether `p` (may be NULL) has the sandbox's present state. */
static bool is_present(const struct sandbox *s, const struct space *p)
{
	return p && p->checkpoint->call_seq == each_call_state(s) && !exec_of(s)->n_calls;
}

/* Returns whether the service may remove the checkpoint unasked: only if the service took it, and
 * nobody named, pinned or uses it. */
static bool may_remove(const struct space *p)
{
	const struct checkpoint *k = p->checkpoint;

	return k->kind != CHECKPOINT_ASKED && !k->name[0] && checkpoint_is_removable(p);
}

static void remove_one(struct space *p)
{
	struct err e;

	if (checkpoint_remove(p, NULL, NULL, &e) < 0)
		log_warn("checkpoint %s can't be removed: %s", p->id, e.text);
}

/* Removes the oldest checkpoints, beyond the number that the sandbox keeps. Those of undone calls
 * are counted apart, so that they don't push out those that an undo can go to. */
static void remove_surplus(const struct sandbox *s)
{
	/* of each kind: number of the checkpoints from the one at hand to the newest */
	uint32_t left[CHECKPOINT_UNDONE + 1] = {0};
	struct list *all = all_of(s);

	list_each (pos, all)
		left[of_call(pos)->kind]++;
	list_each_safe (pos, all) {
		struct space *p = of_call(pos)->space;

		if (left[p->checkpoint->kind]-- > s->config.checkpoint_calls && may_remove(p))
			remove_one(p);
	}
}

/* Removes the oldest checkpoint of undone calls, or the oldest of all if no call was undone. */
static void remove_oldest(const struct sandbox *s)
{
	struct space *oldest = NULL;

	list_each (pos, all_of(s)) {
		struct space *p = of_call(pos)->space;

		if (may_remove(p) && (!oldest || p->checkpoint->kind > oldest->checkpoint->kind))
			oldest = p;
	}
	if (oldest)
		remove_one(oldest);
}

static void failed(struct sandbox *s, const struct failure *f)
{
	if (!snapshots_of(s)->each_call_fails)
		log_warn("sandbox %s: no checkpoint after its calls: %s", s->id, f->text);
	snapshots_of(s)->each_call_fails = true;
}

static void on_taken(void *arg, const struct checkpoint_view *view, const struct failure *f);

static void begin(struct sandbox *s)
{
	const struct checkpoint_spec spec = {.kind = CHECKPOINT_OF_CALL};

	snapshots_of(s)->each_call =
		service_checkpoint(s->service, s->tenant, s->id, &spec, on_taken, s);
}

/* Makes room for a checkpoint if, in a fleet, the rest of the tenant's limit is in use on other
 * hosts: removes the oldest one here. Removes none while this host has no allowance, since that
 * would not help, or while the keeper is away, since it may grant more later. Returns whether there
 * is room now. */
static bool replaces_oldest(struct sandbox *s)
{
	struct failure f;

	if (s->owner->keeper_away || !tenant_checkpoints_fit(s->owner))
		return false;
	remove_oldest(s);
	return fork_may_take(s, &f);
}

static void on_taken(void *arg, const struct checkpoint_view *view, const struct failure *f)
{
	struct sandbox *s = arg;

	snapshots_of(s)->each_call = NULL;
	if (!view && f->code == FAIL_CAP_REACHED && replaces_oldest(s)) {
		begin(s);
	} else if (!view) {
		failed(s, f);
	} else {
		snapshots_of(s)->each_call_fails = false;
		remove_surplus(s);
	}
}

static bool is_due(struct sandbox *s)
{
	struct snapshot_sandbox *of = snapshots_of(s);

	if (!s->config.checkpoint_calls || s->state != SBX_READY || exec_of(s)->n_calls ||
	    of->each_call || of->freeze || s->service->closing)
		return false;
	if (!of->kept_seq)
		of->kept_seq = is_present(s, nth_state(s, 0)) ? s->seq + 1 : KEPT_SEQ_OTHER;
	return of->kept_seq != s->seq + 1;
}

static void take(struct sandbox *s)
{
	struct failure f;

	snapshots_of(s)->kept_seq = s->seq + 1;
	if (!fork_may_take(s, &f) && f.code == FAIL_CAP_REACHED && !f.lacks)
		remove_oldest(s);
	if (fork_may_take(s, &f) || f.lacks)
		begin(s);
	else
		failed(s, &f);
}

static void on_quiet(void *arg)
{
	struct sandbox *s = arg;

	if (is_due(s))
		take(s);
}

void each_call_start_waiting(struct sandbox *s)
{
	struct snapshot_sandbox *of = snapshots_of(s);

	if (is_due(s) && !loop_timer_is_set(&of->quiet))
		loop_timer_start(s->service->loop, &of->quiet, on_quiet, s,
				 snapshots_of_service(s->service)->quiet_ms);
}

void each_call_touched(struct sandbox *s)
{
	struct snapshot_sandbox *of = snapshots_of(s);

	if (!exec_of(s)->n_calls) {
		/* The event of a call's end comes later in this turn of the loop. */
		if (s->config.checkpoint_calls)
			sandbox_schedule(s);
		return;
	}
	loop_timer_clear(s->service->loop, &of->quiet);
	if (of->each_call && fork_withdraw(of->each_call)) {
		of->each_call = NULL;
		of->kept_seq = KEPT_SEQ_OTHER;
	}
}

void each_call_stop(struct sandbox *s)
{
	struct op *op = snapshots_of(s)->each_call;

	loop_timer_clear(s->service->loop, &snapshots_of(s)->quiet);
	snapshots_of(s)->each_call = NULL;
	if (op)
		op_abandon(op);
}

void each_call_shed(struct sandbox *s)
{
	each_call_stop(s);
	list_each_safe (pos, &snapshots_of(s)->of_calls)
		list_del(pos);
	snapshots_of(s)->of_calls_known = false;
}

static bool is_newer(const struct checkpoint *a, const struct checkpoint *b)
{
	return list_position_compare(&a->space->listed.place, &b->space->listed.place) > 0;
}

static void set_kind(struct space *p, enum checkpoint_kind kind)
{
	struct err e;

	if (kind != p->checkpoint->kind && checkpoint_set_kind(p, kind, &e) < 0)
		log_error("checkpoint %s can't be changed: %s", p->id, e.text);
}

/* Marks the sandbox's checkpoints that its state comes from as such, and the others as undone. */
static void mark(struct sandbox *s)
{
	const struct checkpoint *line = snapshots_of(s)->checkpoint.to;
	struct list *all = all_of(s);

	for (struct list *pos = list_prev(all); pos != all; pos = list_prev(pos)) {
		const struct checkpoint *k = of_call(pos);

		while (line && is_newer(line, k))
			line = line->parent.to;
		set_kind(k->space, line == k ? CHECKPOINT_OF_CALL : CHECKPOINT_UNDONE);
	}
}

void each_call_moved(struct sandbox *s, uint64_t state, const struct space *to)
{
	struct snapshot_sandbox *of = snapshots_of(s);
	struct err e;

	of->given = (struct given_state){s->seq, state};
	if (store_sandbox_given(s->service->store, s->id, s->seq, state, &e) < 0)
		log_error("sandbox %s: the number of its state can't be recorded: %s", s->id,
			  e.text);
	mark(s);
	/* A checkpoint that was asked for, or is another sandbox's, may be deleted at any time: the
	 * present state then counts as one without a checkpoint. */
	of->kept_seq = to && to->checkpoint->kind != CHECKPOINT_ASKED && !strcmp(to->sandbox, s->id)
			       ? s->seq + 1
			       : KEPT_SEQ_OTHER;
}

bool each_call_over(const struct space *p)
{
	return may_remove(p) && realtime_ms() - p->created_at_ms > LEFT_MS &&
	       !sandbox_of_any(p->service, p->sandbox);
}

/* --- undo ----------------------------------------------------------------------------------- */

static const struct space *find_undo(struct service *c, const char *tenant, const char *id,
				     uint32_t n, struct failure *f)
{
	const struct sandbox *s = sandbox_find_reached(c, tenant, id, f);

	if (!s)
		return NULL;
	/* A checkpoint of the present state is not counted: going back to it would undo nothing. */
	const bool is_kept = is_present(s, nth_state(s, 0));
	const struct space *to = nth_state(s, n - !is_kept);
	if (!to)
		failure_set(
			f, FAIL_NO_UNDO, 0,
			"sandbox %s has no checkpoint from before its last %u call%s: %s", id, n,
			n == 1 ? "" : "s",
			s->config.checkpoint_calls
				? "its checkpoint_each_call began later, keeps fewer or is at a "
				  "limit, or it got its state from elsewhere"
				: "set its checkpoint_each_call to have them taken from now on");
	return to;
}

struct op *service_undo(struct service *c, const char *tenant, const char *id, uint32_t n,
			const char *keep, service_rollback_fn *fn, void *arg)
{
	struct failure f;
	const struct space *to = find_undo(c, tenant, id, n, &f);

	return to ? service_rollback(c, tenant, id, to->id, keep, fn, arg)
		  : rollback_refuse(c, &f, fn, arg);
}
