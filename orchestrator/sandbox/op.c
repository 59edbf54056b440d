// SPDX-License-Identifier: Apache-2.0
/* Functions for operations of every kind. An operation ends exactly once, and its end is never
 * reported from inside the function that started it. */
#include "orchestrator/sandbox/op.h"

#include "base/alloc.h"
#include "base/elements.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/sandbox/tenant.h"

const struct op_methods op_plain = {0};

struct op *op_new(struct service *c, const struct op_methods *ops, void *arg)
{
	return op_new_sized(c, ops, ops->size ? ops->size : sizeof(struct op), arg);
}

struct op *op_new_sized(struct service *c, const struct op_methods *ops, size_t size, void *arg)
{
	struct op *op = must_alloc(size);

	op->ops = ops;
	op->service = c;
	op->arg = arg;
	op->began_ms = loop_now_ms(c->loop);
	if (!ops->passive) {
		c->n_requests++;
		pool_work_began(c->pool);
	}
	return op;
}

static void put_away(struct op *op)
{
	if (op->ops->put_away && !op->is_put_away)
		op->ops->put_away(op);
	op->is_put_away = true;
}

void op_promise(struct op *op, unsigned n, const struct size *each)
{
	uint64_t mib = (uint64_t)n * each->ram_mib, gb = (uint64_t)n * each->rootfs_gb;

	op->coming_mib += mib;
	op->service->coming_mib += mib;
	op->coming_gb += gb;
	op->tenant->coming_gb += gb;
}

void op_expect(struct op *op, struct tenant *t, unsigned n, const struct size *each)
{
	op->tenant = tenant_hold(t);
	op->coming = n;
	t->coming += n;
	op->service->n_coming += n;
	if (each)
		op_promise(op, n, each);
}

void op_expects_none(struct op *op)
{
	if (!op->tenant)
		return;
	op->tenant->coming -= op->coming;
	op->tenant->coming_gb -= op->coming_gb;
	op->service->n_coming -= op->coming;
	op->service->coming_mib -= op->coming_mib;
	op->coming = 0;
	op->coming_mib = 0;
	op->coming_gb = 0;
	tenant_put(op->tenant);
	op->tenant = NULL;
}

void op_free(struct op *op)
{
	deferred_cancel(&op->deferred);
	op_expects_none(op);
	list_del(&op->link);
	put_away(op);
	if (!op->ops->passive) {
		op->service->n_requests--;
		templates_work_ended(op->service->templates);
	}
	free(op->key);
	free(op);
}

void op_notify_made(const struct op *op, const char *tenant, const char *id, service_create_fn *fn)
{
	struct failure f = op->failure;
	struct sandbox_view view;
	struct sandbox *s = op->failed ? NULL : sandbox_find(op->service, tenant, id, &f);

	if (s)
		sandbox_view_fill(s, &view);
	fn(op->arg, s ? &view : NULL, s ? NULL : &f);
}

void op_notify_done(struct op *op)
{
	if (!op->abandoned && op->done_fn)
		op->done_fn(op->arg, op->failed ? &op->failure : NULL);
}

static void notify(void *arg)
{
	struct op *op = arg;

	/* Unlink it first: the callback must not find the operation in a list. */
	list_del(&op->link);
	if (op->ops->notify)
		op->ops->notify(op);
	else
		op_notify_done(op);
	op_free(op);
}

struct op *op_finish(struct op *op, const struct failure *f)
{
	struct service *c = op->service;

	list_del(&op->link);
	list_add_tail(&c->finished, &op->link);
	op_expects_none(op);
	op->failed = f != NULL;
	if (f)
		op->failure = *f;
	/* Release connections and VMs in progress now, before the callback runs. */
	if (op->ops->finished)
		op->ops->finished(op);
	else if (f)
		put_away(op);
	if (op->ops->makes_sandboxes)
		pool_check(c->pool);
	deferred_run(&c->deferred, &op->deferred, notify, op);
	return op;
}

void ops_free(struct list *ops)
{
	list_drain_of (op, struct op, link, ops)
		op_free(op);
}

void ops_finish(struct list *ops, const struct failure *f)
{
	list_each_of_safe (op, struct op, link, ops)
		op_finish(op, f);
}

void op_abandon(struct op *op)
{
	if (op->ops->abandon)
		op->ops->abandon(op);
	else
		op->abandoned = true;
}

void op_hang_up(struct op *op)
{
	if (op->ops->hang_up)
		op->ops->hang_up(op);
	else
		op_abandon(op);
}

static void set_paused(struct op *op, bool paused)
{
	if (op->ops->set_paused)
		op->ops->set_paused(op, paused);
}

void op_pause(struct op *op)
{
	set_paused(op, true);
}

void op_resume(struct op *op)
{
	set_paused(op, false);
}
