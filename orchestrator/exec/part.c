// SPDX-License-Identifier: Apache-2.0
/* The part of exec/ (sandbox/part.h): its state, and its hooks for events of a sandbox. */
#include "orchestrator/exec/internal.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/tenant.h"

/* Maximum bytes of the parent's events in a child's first journal. Every child gets a copy, and the
 * client of the fork waits until all are written. */
#define INHERITED_MAX (64u << 10)

void exec_start(struct service *c)
{
	output_budget_init(&exec_of_service(c)->output, (size_t)c->config.output_mib << 20);
}

/* A tenant has an account while it has sandboxes that may hold output. */
static void account_take(struct exec_sandbox *e, struct tenant *t)
{
	struct exec_tenant *of = exec_of_tenant(t);

	if (!of->accounted++)
		of->output = output_account_new(&exec_of_service(t->service)->output, t);
	e->output = e->replay.account = of->output;
}

static void account_release(struct exec_sandbox *e, struct tenant *t)
{
	if (!e->output)
		return;
	e->output = e->replay.account = NULL;
	if (!--exec_of_tenant(t)->accounted)
		output_account_put(exec_of_tenant(t)->output);
}

static void sandbox_init(struct sandbox *s)
{
	struct exec_sandbox *e = exec_of(s);

	main_lane_init(&e->main, s);
	account_take(e, s->owner);
}

static void begun(struct sandbox *s, struct agent *agent)
{
	const struct history_entry created = {.kind = HISTORY_CREATED, .at_ms = s->created_at_ms};
	struct exec_sandbox *e = exec_of(s);

	guest_link_take(&e->main.guest, agent);
	if (!e->history.count)
		history_add(&e->history, &created, 0);
	e->journal = journal_new(s->service->config.run_dir, s->slot, s->pid);
	journal_count(e->journal, e->output);
	exec_keep_all(s, INHERITED_MAX);
}

static void touched(struct sandbox *s)
{
	journal_times(exec_of(s)->journal, s->expires_ms, s->idle_since_ms);
}

/* Shows a sandbox that has calls as running, even between two queued calls, or while the guest of a
 * call that a previous instance began is not reached yet. */
static void add_to_view(const struct sandbox *s, struct sandbox_view *view)
{
	if ((s->state == SBX_ADOPTING || s->state == SBX_READY) && exec_of(s)->n_calls)
		view->state = "running";
}

/* A merge moves the execs and the journal to the sandbox that continues. */
static void fail_execs(struct sandbox *s, const struct failure *f)
{
	EACH_LANE (lane, s)
		ops_finish(&lane->calls, f);
	journal_remove(exec_of(s)->journal);
	exec_of(s)->journal = NULL;
}

static void stall_end_all(struct sandbox *s)
{
	EACH_LANE (lane, s)
		stall_end(lane);
}

static void fail_ops(struct sandbox *s, const struct failure *f)
{
	if (s->state == SBX_ENDING)
		fail_execs(s, f);
	stall_end_all(s);
	ops_finish(&exec_of(s)->interrupts, f);
	ops_finish(&exec_of(s)->follows, f);
}

static void shed(struct sandbox *s)
{
	struct exec_sandbox *e = exec_of(s);

	stall_end_all(s);
	main_lane_close(&e->main);
	ops_free(&e->main.calls);
	lanes_free(s);
	ops_free(&e->interrupts);
	ops_free(&e->follows);
	replay_fini(&e->replay);
	history_fini(&e->history);
	journal_close(e->journal);
	e->journal = NULL;
	account_release(e, s->owner);
}

struct part exec_part = {
	.service_size = sizeof(struct exec_service),
	.tenant_size = sizeof(struct exec_tenant),
	.sandbox_size = sizeof(struct exec_sandbox),
	.sandbox_init = sandbox_init,
	.loaded = exec_adopt,
	.begun = begun,
	.vm_ready = exec_dial,
	.start_waiting = exec_start_waiting,
	.touched = touched,
	.view = add_to_view,
	.fail_ops = fail_ops,
	.shed = shed,
};
