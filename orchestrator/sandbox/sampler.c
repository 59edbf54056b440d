// SPDX-License-Identifier: Apache-2.0
/*
 * Each turn looks at one of SAMPLER_TURNS lists of sandboxes, with one job of a worker thread. So
 * any number of sandboxes wakes the service five times a second, and no turn of the loop visits all
 * of them, also after a restart or a large fork.
 */
#include "orchestrator/sandbox/sampler.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/proc.h"
#include "orchestrator/io/step-job.h"
#include "orchestrator/sandbox/context.h"

struct sampling {
	struct step_job job;
	unsigned turn;
	size_t n;
	struct vm_sample {
		uint32_t pid;
		bool found;
		struct vm_use use;
	} vms[]; /* in the order of the list */
};

/* --- one VM process -------------------------------------------------------------------------- */

/* Reads the process's CPU clock: one system call, where /proc/PID/stat needs three and counts in
 * hundredths of a second. */
uint64_t vm_cpu_ns(uint32_t pid)
{
	struct timespec used;
	clockid_t clock;

	if (!pid || clock_getcpuclockid((pid_t)pid, &clock) || clock_gettime(clock, &used) < 0)
		return 0;
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

void vm_memory_read(uint32_t pid, struct memory_use *use)
{
	proc_memory_read(pid, &use->private_bytes, &use->shared_bytes);
}

bool vm_use_read(uint32_t pid, struct vm_use *use)
{
	uint64_t before_ns = use->cpu_ns;

	use->cpu_ns = vm_cpu_ns(pid);
	use->at_ms = now_ns() / 1000000;
	/* A process that has not run since has touched no further memory. Looking up its /proc
	 * files takes 20 times as long as reading its clock. */
	if (use->cpu_ns != before_ns)
		vm_memory_read(pid, &use->memory);
	return use->cpu_ns;
}

static int sample_step(void *arg)
{
	struct sampling *job = arg;

	for (size_t i = 0; i < job->n; i++)
		job->vms[i].found = vm_use_read(job->vms[i].pid, &job->vms[i].use);
	return 1;
}

/* --- on the loop ----------------------------------------------------------------------------- */

static bool has_vm(const struct sandbox *s)
{
	return s->state < SBX_ENDING && s->pid;
}

/* Hands out what was found. Some sandboxes have ended meanwhile; new ones are at the list's end. */
static void note(struct core *c, const struct sampling *job)
{
	size_t i = 0;

	list_each (pos, &c->sampler.turns[job->turn]) {
		struct sandbox *s = container_of(pos, struct sandbox, sample_turn);
		size_t at = i;

		while (at < job->n && (job->vms[at].pid != s->pid || !has_vm(s)))
			at++;
		if (at == job->n)
			continue;
		i = at + 1;
		s->use = job->vms[at].use;
		if (job->vms[at].found)
			RUN_PARTS(c, sampled, s, &s->use);
	}
}

static void next_turn(struct core *c)
{
	struct sampler *sampler = &c->sampler;

	sampler->job = NULL;
	sampler->turn = (sampler->turn + 1) % SAMPLER_TURNS;
	loop_timer_set(c->loop, &sampler->timer, sampler->step_ms / SAMPLER_TURNS);
}

static void on_sampled(void *owner, void *job)
{
	note(owner, job);
	next_turn(owner);
}

/* These are /proc files, which never wait for a disk. */
static const struct step_job_ops sample_ops = {LOOP_CPU, sample_step, NULL, on_sampled, free};

/* Returns NULL when no sandbox has this turn. */
static struct sampling *sampling_new(struct core *c)
{
	const struct list *turn = &c->sampler.turns[c->sampler.turn];

	if (list_empty(turn))
		return NULL;
	struct sampling *job = must_alloc(sizeof(*job) + list_count(turn) * sizeof(job->vms[0]));
	job->turn = c->sampler.turn;
	list_each (pos, turn) {
		const struct sandbox *s = container_of(pos, struct sandbox, sample_turn);

		if (has_vm(s))
			job->vms[job->n++] = (struct vm_sample){.pid = s->pid, .use = s->use};
	}
	return job;
}

static void on_timer(void *arg)
{
	struct core *c = arg;

	c->sampler.job = sampling_new(c);
	if (c->sampler.job)
		step_job_start(c->loop, c->sampler.job, &sample_ops, c);
	else
		next_turn(c);
}

void sampler_init(struct sampler *sampler)
{
	for (unsigned i = 0; i < SAMPLER_TURNS; i++)
		list_init(&sampler->turns[i]);
}

void sampler_add(struct sandbox *s)
{
	struct sampler *sampler = &s->core->sampler;

	list_add_tail(&sampler->turns[sampler->next_turn++ % SAMPLER_TURNS], &s->sample_turn);
}

void sampler_start(struct core *c, uint32_t step_ms)
{
	c->sampler.step_ms = step_ms;
	loop_timer_start(c->loop, &c->sampler.timer, on_timer, c, step_ms / SAMPLER_TURNS);
}

void sampler_stop(struct core *c)
{
	loop_timer_clear(c->loop, &c->sampler.timer);
	step_job_cancel(c->sampler.job);
	c->sampler.job = NULL;
}

struct memory_use sampler_memory(const struct core *c)
{
	struct memory_use all = {0};

	list_each (pos, &c->sandboxes) {
		const struct sandbox *s = container_of(pos, struct sandbox, link);

		if (s->state >= SBX_ENDING)
			continue;
		all.private_bytes += s->use.memory.private_bytes;
		all.shared_bytes += s->use.memory.shared_bytes;
	}
	return all;
}
