// SPDX-License-Identifier: Apache-2.0
/*
 * A rollback gives a sandbox the state of a checkpoint: a VM is started from the checkpoint, and
 * the sandbox continues in it, as after a merge. The state that the sandbox had can be kept as
 * another checkpoint first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/snapshot/internal.h"

struct rollback {
	struct op op;
	service_rollback_fn *fn;
	struct op *inner; /* in progress: the checkpoint of the present state, or the swap */
	char *tenant;
	char id[SANDBOX_ID_LEN + 1], to[SANDBOX_ID_LEN + 1], kept[SANDBOX_ID_LEN + 1];
};

static struct rollback *rollback_of(const struct op *op)
{
	return container_of(op, struct rollback, op);
}

static void put_away(struct op *op)
{
	struct rollback *r = rollback_of(op);

	if (r->inner)
		op_abandon(r->inner);
	r->inner = NULL;
	free(r->tenant);
}

static void notify(struct op *op)
{
	const struct rollback *r = rollback_of(op);

	if (!op->abandoned)
		r->fn(op->arg, r->to, r->kept[0] ? r->kept : NULL,
		      op->failed ? &op->failure : NULL);
}

static void on_swapped(void *arg, const struct failure *f)
{
	struct rollback *r = arg;

	r->inner = NULL;
	op_finish(&r->op, f);
}

static void swap(struct rollback *r)
{
	r->inner = fork_into(r->op.service, r->tenant, r->to, r->id, on_swapped, r);
}

static void on_kept(void *arg, const struct checkpoint_view *view, const struct failure *f)
{
	struct rollback *r = arg;

	r->inner = NULL;
	if (f) {
		op_finish(&r->op, f);
		return;
	}
	memcpy(r->kept, view->id, sizeof(r->kept));
	swap(r);
}

static const struct op_methods rollback_ops = {
	.size = sizeof(struct rollback),
	.put_away = put_away,
	.notify = notify,
};

struct op *rollback_refuse(struct service *c, const struct failure *f, service_rollback_fn *fn,
			   void *arg)
{
	struct rollback *r = rollback_of(op_new(c, &rollback_ops, arg));

	r->fn = fn;
	return op_finish(&r->op, f);
}

struct op *service_rollback(struct service *c, const char *tenant, const char *id,
			    const char *checkpoint, const char *keep, service_rollback_fn *fn,
			    void *arg)
{
	const struct checkpoint_spec spec = {.name = keep};
	struct failure f;

	/* Nothing is kept for a rollback that is refused. */
	if (!fork_into_fits(c, tenant, checkpoint, id, &f))
		return rollback_refuse(c, &f, fn, arg);
	struct rollback *r = rollback_of(op_new(c, &rollback_ops, arg));
	r->fn = fn;
	r->tenant = must_copy(tenant);
	snprintf(r->id, sizeof(r->id), "%s", id);
	snprintf(r->to, sizeof(r->to), "%s", checkpoint);
	list_add_tail(&snapshots_of_service(c)->rollbacks, &r->op.link);
	if (keep)
		r->inner = service_checkpoint(c, tenant, id, &spec, on_kept, r);
	else
		swap(r);
	return &r->op;
}
