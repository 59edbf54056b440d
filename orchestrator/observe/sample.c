// SPDX-License-Identifier: Apache-2.0
/*
 * Measures what the VM of each sandbox uses. The sampler finds the CPU time and the memory of the
 * VM process from outside; the VM process itself reports its disk layer and its network frames
 * (CTL_STATS), and is asked only if it has run since its last report. The guest is not asked, so an
 * idle one stays idle.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/num.h"
#include "orchestrator/io/step-job.h"
#include "orchestrator/observe/state.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"

#define ANSWER_MS 1000		      /* time for the VM process to report */
#define BASE_MS	  1000		      /* in a shorter time, the share of CPU time says nothing */
#define MOST	  (UINT64_C(1) << 53) /* the largest number accepted from a VM process */
/* A VM process that used less CPU time since its last report hardly did anything but report. */
#define RAN_NS 1000000

struct usage_job {
	struct step_job job;
	uint32_t pid;
	bool found; /* false: the process is gone */
	struct vm_use use;
};

struct usage_op {
	struct op op;
	service_usage_fn *fn;
	struct usage_query query;
	struct usage_view view;
	struct usage_sample *samples; /* of `view` */
};

static struct usage_op *usage_op_of(const struct op *op)
{
	return container_of(op, struct usage_op, op);
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

static void answer(struct usage_sandbox *u, struct op *op)
{
	struct usage_op *uc = usage_op_of(op);

	uc->view.size = u->sandbox->config.size;
	uc->view.now = u->found;
	uc->samples = usage_ring_select(&u->ring, &uc->query, &uc->view.n);
	uc->view.samples = uc->samples;
	op_finish(op, NULL);
}

/* Ends the measurement once the worker and the VM process have answered, or the time is up. */
static void check_over(struct usage_sandbox *u)
{
	if (!u->measuring || u->job || (u->asking && loop_timer_is_set(&u->limit)))
		return;
	loop_timer_clear(u->sandbox->service->loop, &u->limit);
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
	list_each_of_safe (op, struct op, link, &u->calls)
		answer(u, op);
}

/* --- measuring ------------------------------------------------------------------------------- */

static int read_step(void *arg)
{
	struct usage_job *job = arg;

	job->found = vm_use_read(job->pid, &job->use);
	return 1;
}

static void note_use(struct usage_sandbox *u, const struct vm_use *use)
{
	u->found.cpu_ms = use->cpu_ns / 1000000;
	u->read_ms = use->at_ms;
	u->found.memory_bytes = use->memory.private_bytes + use->memory.shared_bytes;
}

static void on_read(void *owner, void *arg)
{
	const struct usage_job *job = arg;
	struct usage_sandbox *u = owner;

	if (job->found)
		note_use(u, &job->use);
	u->job = NULL;
	check_over(u);
}

/* These are /proc files, which never wait for a disk. */
static const struct step_job_ops read_ops = {LOOP_CPU, read_step, NULL, on_read, free};

static void on_stats(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct usage_sandbox *u = arg;

	u->asking = NULL;
	if (!error) {
		u->found.disk_bytes = min_u64(reply->reply.stats.disk_layer_bytes, MOST);
		u->found.net_in_bytes = min_u64(reply->reply.stats.net_rx_bytes, MOST);
		u->found.net_out_bytes = min_u64(reply->reply.stats.net_tx_bytes, MOST);
		u->asked_pid = u->sandbox->pid;
		u->asked_cpu_ns = vm_cpu_ns(u->sandbox->pid);
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
	u->asking = vmproc_ask(u->sandbox->vm, CTL_STATS, on_stats, u);
	loop_timer_start(u->sandbox->service->loop, &u->limit, on_limit, u, ANSWER_MS);
}

/* Starts a measurement. If one is in progress, it is used instead. */
static void measure(struct usage_sandbox *u)
{
	if (u->measuring)
		return;
	u->job = must_alloc(sizeof(*u->job));
	u->job->pid = u->sandbox->pid;
	u->measuring = true;
	step_job_start(u->sandbox->service->loop, u->job, &read_ops, u);
	ask(u);
}

static void cancel(struct usage_sandbox *u)
{
	step_job_cancel(u->job);
	if (u->asking)
		vmproc_request_cancel(u->asking);
	u->job = NULL;
	u->asking = NULL;
	u->measuring = u->due = false;
	loop_timer_clear(u->sandbox->service->loop, &u->limit);
}

/* --- samples --------------------------------------------------------------------------------- */

static bool has_run(const struct usage_sandbox *u, const struct vm_use *use)
{
	return u->asked_pid != u->sandbox->pid || use->cpu_ns > u->asked_cpu_ns + RAN_NS;
}

void usage_sampled(struct sandbox *s, const struct vm_use *use)
{
	struct usage_sandbox *u = usage_of(s);

	u->due = true;
	if (u->measuring)
		return;
	u->measuring = true;
	note_use(u, use);
	if (has_run(u, use))
		ask(u);
	check_over(u);
}

/* --- the call -------------------------------------------------------------------------------- */

static void usage_put_away(struct op *op)
{
	free(usage_op_of(op)->samples);
	usage_op_of(op)->samples = NULL;
}

static void usage_notify(struct op *op)
{
	struct usage_op *uc = usage_op_of(op);

	if (!op->abandoned)
		uc->fn(op->arg, op->failed ? NULL : &uc->view, op->failed ? &op->failure : NULL);
}

static const struct op_methods usage_ops = {
	.size = sizeof(struct usage_op),
	.passive = true,
	.put_away = usage_put_away,
	.notify = usage_notify,
	.abandon = op_free,
};

struct op *service_usage(struct service *c, const char *tenant, const char *id,
			 const struct usage_query *query, service_usage_fn *fn, void *arg)
{
	struct op *op = op_new(c, &usage_ops, arg);
	struct failure f;

	usage_op_of(op)->fn = fn;
	usage_op_of(op)->query = *query;
	struct sandbox *s = sandbox_find(c, tenant, id, &f);
	if (!s)
		return op_finish(op, &f);
	measure(usage_of(s));
	list_add_tail(&usage_of(s)->calls, &op->link);
	return op;
}

/* --- hooks ----------------------------------------------------------------------------------- */

static void sandbox_init(struct sandbox *s)
{
	usage_of(s)->sandbox = s;
}

static void loaded(struct sandbox *s, const struct store_sandbox *row)
{
	sampler_add(s);
}

static void begun(struct sandbox *s, struct agent *agent)
{
	sampler_add(s);
}

static void shed(struct sandbox *s)
{
	list_del(&usage_of(s)->turn);
	ops_free(&usage_of(s)->calls);
	cancel(usage_of(s));
	usage_ring_free(&usage_of(s)->ring);
}

static void fail_ops(struct sandbox *s, const struct failure *f)
{
	cancel(usage_of(s));
	ops_finish(&usage_of(s)->calls, f);
}

struct part usage_part = {
	.service_size = sizeof(struct sampler),
	.sandbox_size = sizeof(struct usage_sandbox),
	.sandbox_init = sandbox_init,
	.loaded = loaded,
	.begun = begun,
	.fail_ops = fail_ops,
	.shed = shed,
};
