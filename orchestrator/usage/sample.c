// SPDX-License-Identifier: Apache-2.0
/*
 * Measures what the VM of each sandbox uses. A worker thread reads the CPU time and the memory of
 * the VM process from /proc; the VM process itself reports its disk layer and its network frames
 * (CTL_STATS). The guest is not asked, so an idle one stays idle.
 *
 * Each sandbox has its own timer, with a phase that depends on its slot. So the samples of all
 * sandboxes are spread over the step, also after a restart or a large fork, and no turn of the loop
 * handles more than the few that are due in the same millisecond.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"
#include "orchestrator/sandbox/call.h"
#include "orchestrator/sandbox/context.h"
#include "orchestrator/usage/state.h"
#include "orchestrator/vm/proc-stat.h"

#define ANSWER_MS 1000 /* for the VM process to report */
#define BASE_MS	  1000 /* the CPU time of less than this is too little to divide by */
#define MOST	  (UINT64_C(1) << 53) /* of a number that a VM process reports */

struct usage_job {
	struct usage_sandbox *usage; /* NULL: cancelled */
	uint32_t pid;
	bool found; /* false: the process is gone, or no descriptor is left */
	uint64_t cpu_ms, read_ms;
	struct memory_use memory;
};

struct usage_call {
	struct core_call call;
	core_usage_fn *fn;
	struct usage_query query;
	struct usage_view view;
	struct usage_sample *samples; /* of `view` */
};

static struct usage_call *usage_call_of(const struct core_call *call)
{
	return container_of(call, struct usage_call, call);
}

/* --- the end of a measurement ---------------------------------------------------------------- */

/* Returns the share of the VM's CPUs that it used since `base`. */
static uint32_t cpu_since(const struct usage_sandbox *u, const struct usage_base *base)
{
	const struct sandbox *s = u->sandbox;

	if (!base->pid || base->pid != s->pid || u->read_ms < base->at_ms + BASE_MS ||
	    u->found.cpu_ms < base->cpu_ms)
		return USAGE_CPU_NONE;
	return usage_cpu(u->found.cpu_ms - base->cpu_ms, u->read_ms - base->at_ms,
			 s->config.size.vcpus);
}

static void keep(struct usage_sandbox *u)
{
	u->found.cpu = cpu_since(u, &u->base[0]);
	usage_ring_add(&u->ring, &u->found);
	u->base[1] = u->base[0];
	u->base[0] = (struct usage_base){u->sandbox->pid, u->read_ms, u->found.cpu_ms};
}

static void answer(struct usage_sandbox *u, struct core_call *call)
{
	struct usage_call *uc = usage_call_of(call);

	uc->view.size = u->sandbox->config.size;
	uc->view.now = u->found;
	uc->samples = usage_ring_select(&u->ring, &uc->query, &uc->view.n);
	uc->view.samples = uc->samples;
	call_finish(call, NULL);
}

/* Ends the measurement once the worker and the VM process have answered, or the time is up. */
static void check_over(struct usage_sandbox *u)
{
	if (!u->measuring || u->job || (u->asking && loop_timer_is_set(&u->limit)))
		return;
	loop_timer_clear(u->sandbox->core->loop, &u->limit);
	u->measuring = false;
	u->found.at_ms = realtime_ms();
	if (u->due) {
		keep(u);
	} else {
		u->found.cpu = cpu_since(u, &u->base[0]);
		if (u->found.cpu == USAGE_CPU_NONE)
			u->found.cpu = cpu_since(u, &u->base[1]);
	}
	u->due = false;
	list_each_safe (pos, &u->calls)
		answer(u, container_of(pos, struct core_call, link));
}

/* --- measuring ------------------------------------------------------------------------------- */

static void work(void *arg)
{
	struct usage_job *job = arg;
	struct proc_stat stat;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/stat", job->pid);
	job->found = proc_stat_read(path, &stat);
	if (job->found)
		job->cpu_ms = stat.user_ms + stat.system_ms;
	job->read_ms = now_ns() / 1000000;
	watch_memory(job->pid, &job->memory);
}

static void on_read(void *arg)
{
	struct usage_job *job = arg;
	struct usage_sandbox *u = job->usage;

	if (u && job->found) {
		u->found.cpu_ms = job->cpu_ms;
		u->read_ms = job->read_ms;
		u->found.memory_bytes = job->memory.private_bytes + job->memory.shared_bytes;
	}
	free(job);
	if (!u)
		return;
	u->job = NULL;
	check_over(u);
}

static void on_stats(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct usage_sandbox *u = arg;

	u->asking = NULL;
	if (!error) {
		u->found.disk_bytes = min_u64(reply->reply.stats.disk_layer_bytes, MOST);
		u->found.net_in_bytes = min_u64(reply->reply.stats.net_rx_bytes, MOST);
		u->found.net_out_bytes = min_u64(reply->reply.stats.net_tx_bytes, MOST);
	}
	check_over(u);
}

static void on_limit(void *arg)
{
	check_over(arg);
}

/* Asks the VM process, unless it still has not answered the previous time. */
static void ask(struct usage_sandbox *u)
{
	if (u->asking || !u->sandbox->vm)
		return;
	u->asking = vmproc_ask_stats(u->sandbox->vm, on_stats, u);
	u->limit = (struct loop_timer){.fn = on_limit, .arg = u};
	loop_timer_set(u->sandbox->core->loop, &u->limit, ANSWER_MS);
}

/* Starts a measurement. If one is in progress, it is used instead. */
static void measure(struct usage_sandbox *u)
{
	struct usage_job *job;

	if (u->measuring)
		return;
	job = must_alloc(sizeof(*job));
	*job = (struct usage_job){.usage = u, .pid = u->sandbox->pid};
	/* These are /proc files, which never wait for a disk. */
	if (loop_work(u->sandbox->core->loop, LOOP_CPU, work, on_read, job) == 0)
		u->job = job;
	else
		free(job);
	u->measuring = u->job != NULL;
	if (u->measuring)
		ask(u);
}

static void cancel(struct usage_sandbox *u)
{
	if (u->job)
		u->job->usage = NULL;
	if (u->asking)
		vmproc_request_cancel(u->asking);
	u->job = NULL;
	u->asking = NULL;
	u->measuring = u->due = false;
	loop_timer_clear(u->sandbox->core->loop, &u->limit);
}

/* --- the timer ------------------------------------------------------------------------------- */

static void on_step(void *arg)
{
	struct usage_sandbox *u = arg;
	struct core *c = u->sandbox->core;

	loop_timer_set(c->loop, &u->step, usage_of_core(c)->step_ms);
	measure(u);
	u->due = u->measuring;
}

/* Starts the timer. Neighbouring slots are far apart within the step, and a new sandbox is left
 * alone at first. */
static void start(struct sandbox *s)
{
	struct usage_sandbox *u = usage_of(s);
	uint32_t step_ms = usage_of_core(s->core)->step_ms;

	u->step = (struct loop_timer){.fn = on_step, .arg = u};
	loop_timer_set(s->core->loop, &u->step, step_ms / 2 + (uint64_t)s->slot * 6180 % step_ms);
}

/* --- the call -------------------------------------------------------------------------------- */

static void usage_put_away(struct core_call *call)
{
	free(usage_call_of(call)->samples);
	usage_call_of(call)->samples = NULL;
}

static void usage_notify(struct core_call *call)
{
	struct usage_call *uc = usage_call_of(call);

	if (!call->abandoned)
		uc->fn(call->arg, call->failed ? NULL : &uc->view,
		       call->failed ? &call->failure : NULL);
}

static const struct call_ops usage_ops = {
	.size = sizeof(struct usage_call),
	.passive = true,
	.put_away = usage_put_away,
	.notify = usage_notify,
	.abandon = call_free,
};

struct core_call *core_usage(struct core *c, const char *tenant, const char *id,
			     const struct usage_query *query, core_usage_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, &usage_ops, arg);
	struct failure f;

	usage_call_of(call)->fn = fn;
	usage_call_of(call)->query = *query;
	struct sandbox *s = sandbox_find(c, tenant, id, &f);
	if (!s) {
		call_finish(call, &f);
		return call;
	}
	measure(usage_of(s));
	if (usage_of(s)->measuring) {
		list_add_tail(&usage_of(s)->calls, &call->link);
		return call;
	}
	failure_set(&f, FAIL_NO_MEMORY, 5, "the service has no memory for the request");
	call_finish(call, &f);
	return call;
}

/* --- hooks ----------------------------------------------------------------------------------- */

static void core_init(struct core *c)
{
	usage_of_core(c)->step_ms = USAGE_STEP_MS;
}

static void sandbox_init(struct sandbox *s)
{
	usage_of(s)->sandbox = s;
	list_init(&usage_of(s)->calls);
}

static void shed(struct sandbox *s)
{
	cancel(usage_of(s));
	loop_timer_clear(s->core->loop, &usage_of(s)->step);
	usage_ring_free(&usage_of(s)->ring);
}

static void sandbox_fini(struct sandbox *s)
{
	calls_free(&usage_of(s)->calls);
	shed(s);
}

static void fail_side_calls(struct sandbox *s, const struct failure *f)
{
	cancel(usage_of(s));
	calls_finish(&usage_of(s)->calls, f);
}

struct part usage_part = {
	.core_size = sizeof(struct usage_core),
	.sandbox_size = sizeof(struct usage_sandbox),
	.core_init = core_init,
	.sandbox_init = sandbox_init,
	.sandbox_fini = sandbox_fini,
	.adopting = start,
	.begun = start,
	.fail_side_calls = fail_side_calls,
	.shed = shed,
};
