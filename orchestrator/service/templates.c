// SPDX-License-Identifier: Apache-2.0
/* Implements the callbacks that images/ and pool/ need (template_env_ops), and the calls on
 * templates. */
#include <assert.h>
#include <stdio.h>

#include "base/alloc.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/guestops/state.h"
#include "orchestrator/images/private.h"
#include "orchestrator/images/sources.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/pool/vm-bringup.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/service/service.h"
#include "orchestrator/service/upkeep.h"
#include "orchestrator/store/keys.h"

static_assert(BRINGUP_ID_LEN == SANDBOX_ID_LEN, "a warm sandbox has the id of a sandbox");
static_assert(PRIVATE_TENANT_MAX >= TENANT_ID_LEN, "a private copy is named after its tenant");

static bool is_closing(void *arg)
{
	const struct service *c = arg;

	return c->closing;
}

static bool has_requests(void *arg)
{
	const struct service *c = arg;

	return c->n_requests || guestops_of_service(c)->operations;
}

static bool needs_vms(void *arg)
{
	const struct service *c = arg;

	return c->n_coming;
}

static void changed(void *arg)
{
	const struct service *c = arg;

	pool_check(c->pool);
}

static void keep_warm(void *arg, struct template *t, uint32_t rootfs_gb)
{
	const struct service *c = arg;

	pool_keep(c->pool, t, rootfs_gb);
}

static bool tenant_has_sandboxes(void *arg, const char *tenant)
{
	return tenant_sandboxes(arg, tenant);
}

const struct template_env_ops template_ops = {
	.is_closing = is_closing,
	.has_requests = has_requests,
	.needs_vms = needs_vms,
	.disk_is_low = disk_is_low,
	.tenant_has_sandboxes = tenant_has_sandboxes,
	.changed = changed,
	.keep_warm = keep_warm,
	.made = load_made,
};

/* --- calls ----------------------------------------------------------------------------------- */

struct look_op {
	struct op op;
	struct waiter wait;
};

static void look_put_away(struct op *op)
{
	struct look_op *look = container_of(op, struct look_op, op);

	waiter_cancel(&look->wait);
}

static const struct op_methods look_ops = {
	.size = sizeof(struct look_op),
	.passive = true,
	.put_away = look_put_away,
};

static void on_looked(void *arg, const struct failure *f)
{
	op_finish(arg, f);
}

struct op *service_templates_look(struct service *c, service_done_fn *fn, void *arg)
{
	struct op *op = op_new(c, &look_ops, arg);

	op->done_fn = fn;
	list_add_tail(&c->waits, &op->link);
	sources_look(c->templates, &container_of(op, struct look_op, op)->wait, on_looked, op);
	return op;
}

void service_templates(struct service *c, void (*each)(void *arg, const struct template_view *view),
		       void *arg)
{
	templates_list(c->templates, each, arg);
}
