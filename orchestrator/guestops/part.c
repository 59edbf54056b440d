// SPDX-License-Identifier: Apache-2.0
/* The part of guestops/ (sandbox/part.h): its state, and its hooks for events of a sandbox. */
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"

void guestops_start(struct core *c)
{
	list_init(&guestops_of_core(c)->diffs);
}

static void sandbox_init(struct sandbox *s)
{
	list_init(&guestops_of(s)->ops);
	list_init(&guestops_of(s)->delayed);
}

static void fail_calls(struct sandbox *s, const struct failure *f)
{
	diff_sandbox_gone(s, f);
	guest_op_sandbox_gone(s, f);
}

static void shed(struct sandbox *s)
{
	idle_conns_drop(s);
	calls_free(&guestops_of(s)->ops);
	calls_free(&guestops_of(s)->delayed);
}

void guestops_close(struct core *c)
{
	calls_free(&guestops_of_core(c)->diffs);
}

struct part guestops_part = {
	.core_size = sizeof(struct guestops_core),
	.tenant_size = sizeof(struct guestops_tenant),
	.sandbox_size = sizeof(struct guestops_sandbox),
	.sandbox_init = sandbox_init,
	.start_waiting = guest_op_start_delayed,
	.fail_calls = fail_calls,
	.shed = shed,
};
