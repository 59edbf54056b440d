// SPDX-License-Identifier: Apache-2.0
/* What all calls have in common: their end comes once, and never from inside the call. */
#include "orchestrator/core/inspect.h"

/* Followers wait for what may never come, operations are counted where they begin, and a report
 * shows what is there without it. */
static bool is_request(const struct core_call *call)
{
	return call->kind != CALL_FOLLOW && call->kind != CALL_OP && call->kind != CALL_INSPECT;
}

struct core_call *call_new(struct core *c, enum call_kind kind, void *arg)
{
	struct core_call *call = must_alloc(sizeof(*call));

	call->kind = kind;
	call->core = c;
	call->arg = arg;
	call->began_ms = loop_now_ms(c->loop);
	list_init(&call->link);
	if (is_request(call)) {
		c->n_requests++;
		core_touch(c);
	}
	return call;
}

/* What the call had under way. */
static void put_away(struct core_call *call)
{
	switch (call->kind) {
	case CALL_CREATE:
		create_free(call->create);
		call->create = NULL;
		break;
	case CALL_EXEC:
		exec_free(call->exec);
		call->exec = NULL;
		break;
	case CALL_FOLLOW:
		follow_free(call->follow);
		call->follow = NULL;
		break;
	case CALL_INTERRUPT:
		interrupt_free(call->interrupt);
		call->interrupt = NULL;
		break;
	case CALL_DIFF:
		diff_free(call->diff);
		call->diff = NULL;
		break;
	case CALL_FORK:
		fork_free(call->fork);
		call->fork = NULL;
		break;
	case CALL_OP:
		op_free(call->op);
		call->op = NULL;
		break;
	case CALL_RESUME:
		resume_free(call->resume);
		call->resume = NULL;
		break;
	case CALL_BACKUP:
		backup_free(call->backup);
		call->backup = NULL;
		break;
	case CALL_INSPECT:
		inspection_cancel(call->inspection);
		call->inspection = NULL;
		free(call->text);
		call->text = NULL;
		break;
	case CALL_FREEZE:
	case CALL_DELETE:
	case CALL_MERGE:
	case CALL_SYNC:
		break;
	}
}

void call_promise(struct core_call *call, uint64_t mib)
{
	call->coming_mib += mib;
	call->core->coming_mib += mib;
}

void call_expect(struct core_call *call, struct tenant *t, unsigned n, uint32_t ram_mib)
{
	call->tenant = tenant_hold(t);
	call->coming = n;
	t->coming += n;
	call->core->n_coming += n;
	call_promise(call, (uint64_t)n * ram_mib);
}

void call_expects_none(struct core_call *call)
{
	if (!call->tenant)
		return;
	call->tenant->coming -= call->coming;
	call->core->n_coming -= call->coming;
	call->core->coming_mib -= call->coming_mib;
	call->coming = 0;
	call->coming_mib = 0;
	tenant_put(call->tenant);
	call->tenant = NULL;
}

void call_free(struct core_call *call)
{
	later_cancel(&call->later);
	call_expects_none(call);
	list_del(&call->link);
	put_away(call);
	if (is_request(call)) {
		call->core->n_requests--;
		call->core->busy_ms = loop_now_ms(call->core->loop);
	}
	free(call);
}

static void tell_done(struct core_call *call)
{
	if (!call->abandoned)
		call->done_fn(call->arg, call->failed ? &call->failure : NULL);
}

static void tell(void *arg)
{
	struct core_call *call = arg;

	/* Taken off first: what the callback does must not find it. */
	list_del(&call->link);
	switch (call->kind) {
	case CALL_CREATE:
		create_tell(call);
		break;
	case CALL_EXEC:
		exec_tell(call);
		break;
	case CALL_DIFF:
		diff_tell(call);
		break;
	case CALL_FOLLOW:
		follow_tell(call);
		break;
	case CALL_FORK:
		fork_tell(call);
		break;
	case CALL_OP:
		op_tell(call);
		break;
	case CALL_FREEZE:
		freeze_tell(call);
		break;
	case CALL_RESUME:
		resume_tell(call);
		break;
	case CALL_BACKUP:
		backup_tell(call);
		break;
	case CALL_INSPECT:
		inspect_tell(call);
		break;
	default:
		tell_done(call);
	}
	call_free(call);
}

void call_finish(struct core_call *call, const struct failure *f)
{
	struct core *c = call->core;

	list_del(&call->link);
	list_add_tail(&c->finished, &call->link);
	call_expects_none(call);
	call->failed = f != NULL;
	if (f)
		call->failure = *f;
	/* Connections and VMs under way don't wait for the telling. */
	if (call->kind == CALL_EXEC)
		exec_failed(call);
	else if (call->kind == CALL_OP)
		op_over(call, !f);
	else if (f || call->kind == CALL_INTERRUPT)
		put_away(call);
	if (call->kind == CALL_CREATE || call->kind == CALL_FORK || call->kind == CALL_RESUME)
		pool_check(c);
	later_run(&c->later, &call->later, tell, call);
}

void core_abandon(struct core_call *call)
{
	if (call->kind == CALL_CREATE)
		create_abandon(call);
	else if (call->kind == CALL_EXEC)
		exec_abandon(call);
	else if (call->kind == CALL_FORK)
		fork_abandon(call);
	else if (call->kind == CALL_FOLLOW)
		follow_abandon(call);
	else if (call->kind == CALL_OP)
		op_abandon(call);
	else if (call->kind == CALL_RESUME)
		resume_abandon(call);
	else if (call->kind == CALL_DIFF || call->kind == CALL_BACKUP || call->kind == CALL_INSPECT)
		call_free(call);
	else
		call->abandoned = true;
}

static void set_paused(struct core_call *call, bool paused)
{
	if (call->kind == CALL_EXEC)
		exec_set_paused(call, paused);
	else if (call->kind == CALL_FOLLOW)
		follow_set_paused(call, paused);
	else if (call->kind == CALL_OP)
		op_set_paused(call->op, paused);
}

void core_pause(struct core_call *call)
{
	set_paused(call, true);
}

void core_resume(struct core_call *call)
{
	set_paused(call, false);
}
