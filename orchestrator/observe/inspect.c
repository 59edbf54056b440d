// SPDX-License-Identifier: Apache-2.0
/*
 * The report on a VM and its sandbox, which shows why the VM makes no progress: the service's view,
 * then the VM's (orchestrator/vm/look.h), then whether the guest's agent answers. An inspection
 * can't end the VM or its calls.
 */
#include "orchestrator/observe/inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/report.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/observe/reports.h"
#include "orchestrator/snapshot/state.h"
#include "orchestrator/vm/look.h"

#define AT_ONCE	  8    /* automatic inspections at most; each costs memory, a worker, guest time */
#define PING_MS	  5000 /* limit for connecting to the agent and for its answer together */
#define OPS_SHOWN 20
#define TEXT_MAX  (VM_LOOK_TEXT_MAX + (64u << 10))
#define LINES_MAX 200 /* maximum for one report in the log */
#define BURST	  5   /* reports that may be logged at once; one more is allowed each REFILL_MS */
#define REFILL_MS 60000

struct inspection {
	struct service *service;
	struct sandbox *sandbox; /* NULL: none, or it ended during the inspection */
	struct list link;	 /* on inspect_service.inspections */
	struct vmproc_look *look;
	struct guest_link guest;
	struct deferred deferred;
	uint64_t asked_ns, connected_ns;
	struct inspected found;
	inspected_fn *fn;
	void *arg;
	struct report report;
	char text[TEXT_MAX];
};

/* --- the service's view --------------------------------------------------------------------- */

static double seconds_since(const struct service *c, uint64_t ms)
{
	return (double)(loop_now_ms(c->loop) - ms) / 1e3;
}

static void add_service(const struct service *c, struct report *r)
{
	report_add(
		r,
		"service: %zu sandboxes, %zu requests in flight, %zu sandboxes being created, %u "
		"creates, %u resumes, %u freezes, %u VMs wait for a slot, %zu ends not yet in the "
		"catalogue%s%s\n",
		c->n_sandboxes, c->n_requests, c->n_coming, list_count(&c->creates),
		list_count(&snapshots_of_service(c)->resumes),
		list_count(&snapshots_of_service(c)->freezes), list_count(&c->vms.waiting),
		c->ended.n_unrecorded,
		templates_building(c->templates) ? ", a template is being built" : "",
		c->vms.warden_lost ? ", the warden is gone" : "");
}

static void add_agent(const struct sandbox *s, struct report *r)
{
	const struct exec_lane *lane = &exec_of(s)->main;

	report_add(r, "  connection to its agent: %s%s%s%s%s",
		   lane->guest.agent  ? "open"
		   : lane->guest.dial ? "connecting"
				      : "none",
		   lane->guest.agent && agent_is_sending(lane->guest.agent) ? ", not all sent" : "",
		   exec_of(s)->held ? ", reading is stopped" : "",
		   snapshots_of(s)->copying ? ", its VM is being copied" : "",
		   lane->guest_busy ? ", the guest may still run an earlier call" : "");
	if (lane->lost_ms)
		report_add(r, ", lost %.1f s ago", seconds_since(s->service, lane->lost_ms));
	report_add(r, "; %zu bytes of a call are not sent yet\n", lane->sending_bytes);
}

static void add_ops(const struct sandbox *s, struct report *r)
{
	unsigned shown = 0;

	if (!list_empty(&guestops_of(s)->ops) || !list_empty(&exec_of(s)->interrupts) ||
	    !list_empty(&snapshots_of(s)->forks))
		report_add(r, "  %u operations, %u listeners, %u interrupts, %u forks\n",
			   guestops_of(s)->n_ops, guestops_of(s)->n_listeners,
			   list_count(&exec_of(s)->interrupts),
			   list_count(&snapshots_of(s)->forks));
	list_each_of (base, const struct op, link, &guestops_of(s)->ops) {
		const struct guest_op *op = guest_op_of(base);

		if (shown++ == OPS_SHOWN)
			return;
		report_add(r, "  %s for %.1f s: %s%s, last progress %.1f s ago\n",
			   op->kind->listens ? "listener"
			   : op->kind->file  ? "file operation"
					     : "operation",
			   seconds_since(base->service, base->began_ms),
			   op->guest.dial    ? "connecting"
			   : op->guest.agent ? "waiting for the agent"
					     : "lost its connection",
			   op->paused ? ", paused by its client" : "",
			   seconds_since(base->service, op->touched_ms));
	}
}

static void add_sandbox(const struct sandbox *s, struct report *r)
{
	static const char *const names[] = {
		[SBX_ADOPTING] = "adopting: its agent is not reached yet",
		[SBX_READY] = "ready",
		[SBX_RUNNING] = "running",
		[SBX_FREEZING] = "freezing",
		[SBX_ENDING] = "ending",
		[SBX_ENDED] = "ended",
	};

	report_add(r, "sandbox %s: %s, tenant %s, template %s, %u MiB x %u, made %.1f s ago\n",
		   s->id, names[s->state], s->tenant, s->config.template, s->config.size.ram_mib,
		   s->config.size.vcpus, (double)(realtime_ms() - s->created_at_ms) / 1e3);
	exec_report(s, r);
	add_ops(s, r);
	add_agent(s, r);
}

/* --- the agent ------------------------------------------------------------------------------ */

static void inspection_free(struct inspection *i)
{
	inspect_of_service(i->service)->n_inspections--;
	deferred_cancel(&i->deferred);
	vmproc_look_cancel(i->look);
	guest_link_close(&i->guest);
	list_del(&i->link);
	free(i);
}

static void inspection_cancel(struct inspection *i)
{
	if (i)
		inspection_free(i);
}

static void notify(void *arg)
{
	struct inspection *i = arg;

	list_del(&i->link);
	i->found.text = i->text;
	i->fn(i->arg, &i->found);
	inspection_free(i);
}

static double ms_since(uint64_t ns)
{
	return (double)(now_ns() - ns) / 1e6;
}

static void end_ping(struct inspection *i)
{
	guest_link_close(&i->guest);
	notify(i);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct inspection *i = arg;

	if (frame->type != AGENT_DONE)
		return; /* AGENT_PROC: one entry of the list */
	i->found.agent_answers = true;
	report_add(&i->report,
		   "its agent answers: connected after %.3f ms, its list of processes came %.3f ms "
		   "later\n",
		   (double)(i->connected_ns - i->asked_ns) / 1e6, ms_since(i->connected_ns));
	end_ping(i);
}

static void on_lost(void *arg, enum guest_lost reason, const char *text)
{
	struct inspection *i = arg;

	if (reason == GUEST_UNREACHED)
		report_add(&i->report, "its agent does not answer: no connection in %.3f ms: %s\n",
			   ms_since(i->asked_ns), text);
	else if (reason == GUEST_BROKEN)
		report_add(&i->report,
			   "its agent does not answer: the connection broke after %.3f ms: %s\n",
			   ms_since(i->connected_ns), text);
	else
		report_add(&i->report, "its agent was not asked: no memory\n");
	end_ping(i);
}

static void on_late(void *arg)
{
	struct inspection *i = arg;

	if (i->guest.agent)
		report_add(&i->report,
			   "its agent does not answer: connected after %.3f ms, asked for its "
			   "processes, and nothing came for %.3f ms\n",
			   (double)(i->connected_ns - i->asked_ns) / 1e6,
			   ms_since(i->connected_ns));
	else
		report_add(&i->report, "its agent does not answer: no connection in %.3f ms\n",
			   ms_since(i->asked_ns));
	end_ping(i);
}

/* Asks for the list of processes: the agent's own loop answers that, whatever Python is doing. */
static void on_reached(void *arg)
{
	struct inspection *i = arg;

	i->connected_ns = now_ns();
	guest_link_send_plain(&i->guest, AGENT_PROC_LIST);
}

static const struct guest_link_events guest_events = {
	.reached = on_reached,
	.frame = on_frame,
	.lost = on_lost,
	.late = on_late,
};

/* Returns why the agent can't be asked; NULL: it can. A VM process that does not answer is not
 * asked to connect, since a failed request would end the VM. */
static const char *why_not_asked(const struct inspection *i)
{
	if (!i->sandbox)
		return "the VM belongs to no sandbox, or its sandbox ended";
	if (!i->found.vm_answers)
		return "the VM process does not answer";
	if (!vmproc_is_running(i->sandbox->vm))
		return "the VM does not run";
	return NULL;
}

static void on_looked(void *arg, bool answers, const char *text)
{
	struct inspection *i = arg;
	const char *reason;

	i->look = NULL;
	i->found.vm_answers = answers;
	report_add(&i->report, "%s", text);
	reason = why_not_asked(i);
	if (reason) {
		report_add(&i->report, "its agent was not asked: %s\n", reason);
		notify(i);
		return;
	}
	i->asked_ns = now_ns();
	guest_link_init(&i->guest, i->service->loop, &guest_events, i);
	guest_link_set_deadline(&i->guest, PING_MS);
	guest_link_dial(&i->guest, i->sandbox->vm, PING_MS, false);
}

static struct inspection *inspection_start(struct service *c, struct vmproc *vm, struct sandbox *s,
					   inspected_fn *fn, void *arg)
{
	struct inspection *i = must_alloc(sizeof(*i));

	i->service = c;
	i->sandbox = s;
	i->fn = fn;
	i->arg = arg;
	i->report = report_on(i->text, sizeof(i->text));
	list_add_tail(&inspect_of_service(c)->inspections, &i->link);
	inspect_of_service(c)->n_inspections++;
	add_service(c, &i->report);
	if (s)
		add_sandbox(s, &i->report);
	if (vm) {
		i->look = vmproc_look(vm, on_looked, i);
		return i;
	}
	report_add(&i->report, "it has no VM\n");
	deferred_run(&c->deferred, &i->deferred, notify, i);
	return i;
}

static struct inspection *start_automatic(struct service *c, struct vmproc *vm, struct sandbox *s,
					  inspected_fn *fn, void *arg)
{
	if (inspect_of_service(c)->n_inspections >= AT_ONCE)
		return NULL;
	return inspection_start(c, vm, s, fn, arg);
}

/* Detaches inspections from the ending sandbox. Those that still ask the VM process continue
 * without it; those that wait for the agent end. */
static void fail_ops(struct sandbox *s, const struct failure *f)
{
	list_each_of_safe (i, struct inspection, link,
			   &inspect_of_service(s->service)->inspections) {
		if (i->sandbox != s)
			continue;
		i->sandbox = NULL;
		if (i->look || i->deferred.fn)
			continue;
		guest_link_close(&i->guest);
		report_add(&i->report, "its agent did not answer before the sandbox had ended\n");
		deferred_run(&i->service->deferred, &i->deferred, notify, i);
	}
}

/* --- operators ------------------------------------------------------------------------------ */

struct inspect_op {
	struct op base;
	service_inspect_fn *fn;
	struct inspection *inspection; /* in progress; NULL: none */
	char *text;		       /* the report */
};

static struct inspect_op *inspect_op_of(const struct op *base)
{
	return container_of(base, struct inspect_op, base);
}

static void on_inspected(void *arg, const struct inspected *found)
{
	struct op *base = arg;

	inspect_op_of(base)->inspection = NULL;
	inspect_op_of(base)->text = must_copy(found->text);
	op_finish(base, NULL);
}

/* Finds a VM by its slot number, as "12". Returns false when the slot is empty. */
static bool find_slot(struct service *c, const char *name, struct vmproc **vm)
{
	unsigned slot;
	char rest;

	if (sscanf(name, "%u%c", &slot, &rest) != 1 || slot >= c->vms.max_vms)
		return false;
	*vm = c->vms.slots[slot];
	return *vm;
}

static struct sandbox *sandbox_in(struct service *c, const struct vmproc *vm)
{
	list_each_of (s, struct sandbox, link, &c->sandboxes)
		if (s->vm == vm)
			return s;
	return NULL;
}

static void inspect_put_away(struct op *base)
{
	inspection_cancel(inspect_op_of(base)->inspection);
	inspect_op_of(base)->inspection = NULL;
	free(inspect_op_of(base)->text);
	inspect_op_of(base)->text = NULL;
}

static void inspect_notify(struct op *base)
{
	if (!base->abandoned)
		inspect_op_of(base)->fn(base->arg, inspect_op_of(base)->text,
					base->failed ? &base->failure : NULL);
}

static const struct op_methods inspect_ops = {
	.size = sizeof(struct inspect_op),
	.passive = true,
	.put_away = inspect_put_away,
	.notify = inspect_notify,
	.abandon = op_free,
};

struct op *service_inspect(struct service *c, const char *name, service_inspect_fn *fn, void *arg)
{
	struct op *base = op_new(c, &inspect_ops, arg);
	struct sandbox *s = sandbox_of_any(c, name);
	struct vmproc *vm = s ? s->vm : NULL;
	struct failure f;

	inspect_op_of(base)->fn = fn;
	list_add_tail(&c->waits, &base->link);
	if (s || find_slot(c, name, &vm)) {
		s = s ? s : sandbox_in(c, vm);
		inspect_op_of(base)->inspection = inspection_start(c, vm, s, on_inspected, base);
		return base;
	}
	failure_set(
		&f, FAIL_NOT_FOUND, 0,
		"there is no sandbox %.60s and no VM in a slot of that number: `rametctl ls` lists "
		"the sandboxes",
		name);
	return op_finish(base, &f);
}

/* --- the log -------------------------------------------------------------------------------- */

/* Limits the rate of reports, so that a tenant with stalled guests can't fill the log. */
static bool may_log(struct service *c)
{
	struct stall_reports *s = &inspect_of_service(c)->stall_reports;
	uint64_t now_ms = loop_now_ms(c->loop), more = (now_ms - s->since_ms) / REFILL_MS;

	if (more) {
		s->written = s->written > more ? s->written - (unsigned)more : 0;
		s->since_ms = now_ms;
	}
	if (s->written >= BURST) {
		s->left_out++;
		return false;
	}
	s->written++;
	return true;
}

static void stall_log(struct service *c, const char *what, const char *text)
{
	unsigned lines = 0;

	if (!may_log(c)) {
		log_warn("%s is stalled; its report is left out, since %d were logged recently: "
			 "`rametctl inspect` shows its current state",
			 what, BURST);
		return;
	}
	log_warn("%s is stalled; a report on it follows (%u others were left out)", what,
		 inspect_of_service(c)->stall_reports.left_out);
	inspect_of_service(c)->stall_reports.left_out = 0;
	for (; *text && lines < LINES_MAX; lines++) {
		int len = (int)strcspn(text, "\n");

		log_warn("| %.*s", len, text);
		text += len;
		text += *text == '\n';
	}
	log_warn("| %s", *text ? "(more lines are left out)" : "end of the report");
}

/* --- sandbox hooks -------------------------------------------------------------------------- */

const struct inspector inspector = {
	.start = start_automatic,
	.cancel = inspection_cancel,
	.log = stall_log,
};

struct part inspect_part = {
	.service_size = sizeof(struct inspect_service),
	.fail_ops = fail_ops,
};
