// SPDX-License-Identifier: Apache-2.0
/* The part of guestops/ (sandbox/part.h): its state, and its hooks for events of a sandbox. */
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"

static void fail_ops(struct sandbox *s, const struct failure *f)
{
	diff_sandbox_gone(s, f);
	guest_op_sandbox_gone(s, f);
}

static void shed(struct sandbox *s)
{
	idle_conns_drop(s);
	ops_free(&guestops_of(s)->ops);
	ops_free(&guestops_of(s)->delayed);
}

void guestops_close(struct service *c)
{
	/* These first, since they use operations of other lists. */
	ops_free(&guestops_of_service(c)->merges);
	ops_free(&guestops_of_service(c)->staged);
	ops_free(&guestops_of_service(c)->diffs);
}

struct part guestops_part = {
	.service_size = sizeof(struct guestops_service),
	.tenant_size = sizeof(struct guestops_tenant),
	.sandbox_size = sizeof(struct guestops_sandbox),
	.start_waiting = guest_op_start_delayed,
	.fail_ops = fail_ops,
	.shed = shed,
};
