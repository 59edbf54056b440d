// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints after each call of a sandbox, and the undo of calls. They are taken while no call
 * runs or waits in any of its interpreters, at its start and whenever its calls have made events
 * since the last one. A call that comes before the snapshot has begun overtakes it: then none is
 * taken of that state.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/snapshot/internal.h"

#define LEFT_MS	       (3600 * 1000) /* age at which those of an ended sandbox are removed */
#define KEPT_SEQ_OTHER UINT64_MAX

static struct roster *all_of(const struct sandbox *s)
{
	return &snapshots_of_tenant(s->owner)->checkpoints;
}

/* Returns the i-th checkpoint of the sandbox's tenant, if it was taken after a call of the sandbox;
 * else NULL. */
static struct space *after_call(const struct sandbox *s, size_t i)
{
	struct space *p = container_of(all_of(s)->all[i], struct space, listed);

	return p->checkpoint->kind != CHECKPOINT_ASKED && !strcmp(p->sandbox, s->id) ? p : NULL;
}

/* Returns the newest checkpoint of a state that the sandbox has come from, older than `n` others;
 * or NULL. */
static struct space *before(const struct sandbox *s, uint32_t n)
{
	for (size_t i = all_of(s)->n; i--;) {
		struct space *p = after_call(s, i);

		if (p && p->checkpoint->kind == CHECKPOINT_OF_CALL && n-- == 0)
			return p;
	}
	return NULL;
}

/* Returns whether that is the present state. */
static bool is_present(const struct sandbox *s, const struct space *p)
{
	return p && p->checkpoint->call_seq == s->seq && !exec_of(s)->n_calls;
}

static bool is_automatic(const struct space *p)
{
	const struct checkpoint *k = p->checkpoint;

	return k->kind != CHECKPOINT_ASKED && !k->name[0] && checkpoint_is_removable(p);
}

static void remove_surplus(const struct sandbox *s)
{
	uint32_t newer = 0;
	struct err e;

	/* From the newest on: a removal moves only those that were looked at. */
	for (size_t i = all_of(s)->n; i--;) {
		struct space *p = after_call(s, i);

		if (p && newer++ >= s->config.checkpoint_calls && is_automatic(p) &&
		    checkpoint_remove(p, NULL, NULL, &e) < 0)
			log_warn("checkpoint %s can't be removed: %s", p->id, e.text);
	}
}

static void failed(struct sandbox *s, const struct failure *f)
{
	if (!snapshots_of(s)->each_call_fails)
		log_warn("sandbox %s: no checkpoint after its calls: %s", s->id, f->text);
	snapshots_of(s)->each_call_fails = true;
}

static void on_taken(void *arg, const struct checkpoint_view *view, const struct failure *f)
{
	struct sandbox *s = arg;

	snapshots_of(s)->each_call = NULL;
	if (!view) {
		failed(s, f);
		return;
	}
	snapshots_of(s)->each_call_fails = false;
	remove_surplus(s);
}

static bool is_due(struct sandbox *s)
{
	struct snapshot_sandbox *of = snapshots_of(s);

	if (!s->config.checkpoint_calls || s->state != SBX_READY || exec_of(s)->n_calls ||
	    of->each_call || of->freeze || s->service->closing)
		return false;
	if (!of->kept_seq) {
		const struct space *last = before(s, 0);

		of->kept_seq = is_present(s, last) ? s->seq + 1 : KEPT_SEQ_OTHER;
	}
	return of->kept_seq != s->seq + 1;
}

void each_call_start_waiting(struct sandbox *s)
{
	const struct checkpoint_spec spec = {.kind = CHECKPOINT_OF_CALL};
	struct snapshot_sandbox *of = snapshots_of(s);
	struct failure f;

	if (!is_due(s))
		return;
	of->kept_seq = s->seq + 1;
	if (fork_may_take(s, &f))
		of->each_call =
			service_checkpoint(s->service, s->tenant, s->id, &spec, on_taken, s);
	else
		failed(s, &f);
}

void each_call_touched(struct sandbox *s)
{
	struct snapshot_sandbox *of = snapshots_of(s);

	if (!exec_of(s)->n_calls) {
		/* The event of a call's end comes later in this turn of the loop. */
		if (s->config.checkpoint_calls)
			sandbox_schedule(s);
	} else if (of->each_call && fork_withdraw(of->each_call)) {
		of->each_call = NULL;
		of->kept_seq = KEPT_SEQ_OTHER;
	}
}

void each_call_stop(struct sandbox *s)
{
	struct op *op = snapshots_of(s)->each_call;

	snapshots_of(s)->each_call = NULL;
	if (op)
		op_abandon(op);
}

static void set_kind(struct space *p, enum checkpoint_kind kind, uint64_t call_seq)
{
	struct err e;

	if (checkpoint_set_kind(p, kind, call_seq, &e) < 0)
		log_error("checkpoint %s can't be changed: %s", p->id, e.text);
}

void each_call_rolled_back(struct sandbox *s, struct space *to)
{
	for (size_t i = all_of(s)->n; i--;) {
		struct space *p = after_call(s, i);

		if (all_of(s)->all[i] == &to->listed)
			break;
		if (p && p->checkpoint->kind == CHECKPOINT_OF_CALL)
			set_kind(p, CHECKPOINT_UNDONE, p->checkpoint->call_seq);
	}
	if (to->checkpoint->kind == CHECKPOINT_ASKED || strcmp(to->sandbox, s->id) != 0)
		return;
	set_kind(to, CHECKPOINT_OF_CALL, s->seq);
	snapshots_of(s)->kept_seq = s->seq + 1;
}

bool each_call_over(const struct space *p)
{
	return is_automatic(p) && realtime_ms() - p->created_at_ms > LEFT_MS &&
	       !sandbox_of_any(p->service, p->sandbox);
}

/* --- undo ----------------------------------------------------------------------------------- */

static const struct space *find_undo(struct service *c, const char *tenant, const char *id,
				     uint32_t n, struct failure *f)
{
	const struct sandbox *s = sandbox_find_reached(c, tenant, id, f);

	if (!s)
		return NULL;
	const bool is_kept = is_present(s, before(s, 0));
	const struct space *to = before(s, n - !is_kept);
	if (!to)
		failure_set(f, FAIL_NO_UNDO, 0,
			    "sandbox %s has no checkpoint from before its last %u calls: %s", id, n,
			    s->config.checkpoint_calls
				    ? "its checkpoint_each_call began later, or keeps fewer"
				    : "set its checkpoint_each_call, then they are taken from then "
				      "on");
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
