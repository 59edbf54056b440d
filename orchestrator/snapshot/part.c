// SPDX-License-Identifier: Apache-2.0
/* The part of snapshot/ (sandbox/part.h): its state, and its hooks for events of a sandbox. */
#include "base/elements.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/snapshot/internal.h"

/* A freeze whose VM process takes longer for its snapshot loses its slot, so that slow VMs of two
 * tenants can't block all others. */
#define SLOT_LIMIT_MS 3000

/* Clients that call again at once do so within about a millisecond, which a checkpoint takes too.
 */
#define QUIET_MS 2

void snapshots_start(struct service *c)
{
	snapshots_of_service(c)->slot_limit_ms = SLOT_LIMIT_MS;
	snapshots_of_service(c)->quiet_ms = QUIET_MS;
}

static void loaded(struct sandbox *s, const struct store_sandbox *row)
{
	const struct space *p = space_of(s->service, row->checkpoint);

	checkpoint_ref_set(&snapshots_of(s)->checkpoint, p ? p->checkpoint : NULL);
	snapshots_of(s)->given = (struct given_state){row->given_seq, row->given_state};
}

static void begun(struct sandbox *s, struct agent *agent)
{
	(void)agent;
	each_call_touched(s);
}

static void touched(struct sandbox *s)
{
	freeze_sandbox_touched(s);
	each_call_touched(s);
}

static void start_waiting(struct sandbox *s)
{
	each_call_start_waiting(s);
	fork_start_waiting(s);
	freeze_start_waiting(s);
}

static void add_to_view(const struct sandbox *s, struct sandbox_view *view)
{
	freeze_progress(s, &view->frozen_bytes, &view->freeze_bytes);
}

static void time_over(struct sandbox *s)
{
	freeze_start(s, NULL);
}

static void fail_ops(struct sandbox *s, const struct failure *f)
{
	each_call_stop(s);
	fork_sandbox_gone(s, f);
	freeze_sandbox_gone(s, f);
}

static void shed(struct sandbox *s)
{
	each_call_shed(s);
	checkpoint_ref_set(&snapshots_of(s)->checkpoint, NULL);
	freeze_sandbox_gone(s, NULL);
	ops_free(&snapshots_of(s)->forks);
	resume_shed(s);
}

struct part snapshot_part = {
	.service_size = sizeof(struct snapshot_service),
	.tenant_size = sizeof(struct snapshot_tenant),
	.sandbox_size = sizeof(struct snapshot_sandbox),
	.loaded = loaded,
	.begun = begun,
	.touched = touched,
	.start_waiting = start_waiting,
	.view = add_to_view,
	.freeze = time_over,
	.fail_ops = fail_ops,
	.shed = shed,
};

/* --- the end of the service ------------------------------------------------------------------ */

void snapshots_shut_down(struct service *c, const struct failure *f)
{
	/* Rollbacks abandon ops of other lists. */
	ops_finish(&snapshots_of_service(c)->rollbacks, f);
	ops_finish(&snapshots_of_service(c)->resumes, f);
	list_each_of (s, struct sandbox, link, &c->sandboxes)
		fork_sandbox_gone(s, f);
}

void snapshots_close(struct service *c)
{
	ops_free(&snapshots_of_service(c)->rollbacks);
	/* Free the forks before the freezes of leaves for which they wait: freezes are freed with
	 * their sandboxes. */
	list_each_of (s, struct sandbox, link, &c->sandboxes)
		ops_free(&snapshots_of(s)->forks);
	ops_free(&snapshots_of_service(c)->resumes);
}

void snapshots_free(struct service *c)
{
	freezes_free(c);
	spaces_free(c);
}
