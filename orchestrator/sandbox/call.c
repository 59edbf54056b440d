// SPDX-License-Identifier: Apache-2.0
/* Functions for calls of every kind. A call ends exactly once, and its end is never reported from
 * inside the function that started it. */
#include "orchestrator/sandbox/call.h"

#include "base/alloc.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/sandbox/tenant.h"

const struct call_ops call_plain = {0};

struct core_call *call_new(struct core *c, const struct call_ops *ops, void *arg)
{
	return call_new_sized(c, ops, ops->size ? ops->size : sizeof(struct core_call), arg);
}

struct core_call *call_new_sized(struct core *c, const struct call_ops *ops, size_t size, void *arg)
{
	struct core_call *call = must_alloc(size);

	call->ops = ops;
	call->core = c;
	call->arg = arg;
	call->began_ms = loop_now_ms(c->loop);
	list_init(&call->link);
	if (!ops->passive) {
		c->n_requests++;
		pool_work_began(c->pool);
	}
	return call;
}

static void put_away(struct core_call *call)
{
	if (call->ops->put_away && !call->is_put_away)
		call->ops->put_away(call);
	call->is_put_away = true;
}

void call_promise(struct core_call *call, unsigned n, const struct size *each)
{
	uint64_t mib = (uint64_t)n * each->ram_mib, gb = (uint64_t)n * each->rootfs_gb;

	call->coming_mib += mib;
	call->core->coming_mib += mib;
	call->coming_gb += gb;
	call->tenant->coming_gb += gb;
}

void call_expect(struct core_call *call, struct tenant *t, unsigned n, const struct size *each)
{
	call->tenant = tenant_hold(t);
	call->coming = n;
	t->coming += n;
	call->core->n_coming += n;
	if (each)
		call_promise(call, n, each);
}

void call_expects_none(struct core_call *call)
{
	if (!call->tenant)
		return;
	call->tenant->coming -= call->coming;
	call->tenant->coming_gb -= call->coming_gb;
	call->core->n_coming -= call->coming;
	call->core->coming_mib -= call->coming_mib;
	call->coming = 0;
	call->coming_mib = 0;
	call->coming_gb = 0;
	tenant_put(call->tenant);
	call->tenant = NULL;
}

void call_free(struct core_call *call)
{
	deferred_cancel(&call->deferred);
	call_expects_none(call);
	list_del(&call->link);
	put_away(call);
	if (!call->ops->passive) {
		call->core->n_requests--;
		templates_work_ended(call->core->templates);
	}
	free(call->key);
	free(call);
}

void call_notify_done(struct core_call *call)
{
	if (!call->abandoned && call->done_fn)
		call->done_fn(call->arg, call->failed ? &call->failure : NULL);
}

static void notify(void *arg)
{
	struct core_call *call = arg;

	/* Unlink it first: the callback must not find the call in a list. */
	list_del(&call->link);
	if (call->ops->notify)
		call->ops->notify(call);
	else
		call_notify_done(call);
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
	/* Release connections and VMs in progress now, before the callback runs. */
	if (call->ops->finished)
		call->ops->finished(call);
	else if (f)
		put_away(call);
	if (call->ops->makes_sandboxes)
		pool_check(c->pool);
	deferred_run(&c->deferred, &call->deferred, notify, call);
}

void calls_free(struct list *calls)
{
	while (!list_empty(calls))
		call_free(container_of(calls->next, struct core_call, link));
}

void calls_finish(struct list *calls, const struct failure *f)
{
	list_each_safe (pos, calls)
		call_finish(container_of(pos, struct core_call, link), f);
}

void core_abandon(struct core_call *call)
{
	if (call->ops->abandon)
		call->ops->abandon(call);
	else
		call->abandoned = true;
}

void core_hang_up(struct core_call *call)
{
	if (call->ops->hang_up)
		call->ops->hang_up(call);
	else
		core_abandon(call);
}

static void set_paused(struct core_call *call, bool paused)
{
	if (call->ops->set_paused)
		call->ops->set_paused(call, paused);
}

void core_pause(struct core_call *call)
{
	set_paused(call, true);
}

void core_resume(struct core_call *call)
{
	set_paused(call, false);
}
