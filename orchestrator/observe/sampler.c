// SPDX-License-Identifier: Apache-2.0
/*
 * Each turn looks at one of SAMPLER_TURNS lists of sandboxes, with one job of a worker thread. So
 * any number of sandboxes wakes the service five times a second, and no turn of the loop visits all
 * of them, also after a restart or a large fork.
 */
#include "orchestrator/observe/sampler.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "orchestrator/io/step-job.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/observe/state.h"

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

/* --- on a worker thread ---------------------------------------------------------------------- */

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
static void note(struct service *c, const struct sampling *job)
{
	size_t i = 0;

	list_each (pos, &sampler_of(c)->turns[job->turn]) {
		struct sandbox *s = container_of(pos, struct usage_sandbox, turn)->sandbox;
		size_t at = i;

		while (at < job->n && (job->vms[at].pid != s->pid || !has_vm(s)))
			at++;
		if (at == job->n)
			continue;
		i = at + 1;
		s->use = job->vms[at].use;
		if (job->vms[at].found)
			usage_sampled(s, &s->use);
	}
}

static void next_turn(struct service *c)
{
	struct sampler *sampler = sampler_of(c);

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
static struct sampling *sampling_new(struct service *c)
{
	const struct list *turn = &sampler_of(c)->turns[sampler_of(c)->turn];

	if (list_empty(turn))
		return NULL;
	struct sampling *job = must_alloc(sizeof(*job) + list_count(turn) * sizeof(job->vms[0]));
	job->turn = sampler_of(c)->turn;
	list_each (pos, turn) {
		const struct sandbox *s = container_of(pos, struct usage_sandbox, turn)->sandbox;

		if (has_vm(s))
			job->vms[job->n++] = (struct vm_sample){.pid = s->pid, .use = s->use};
	}
	return job;
}

static void on_timer(void *arg)
{
	struct service *c = arg;

	sampler_of(c)->job = sampling_new(c);
	if (sampler_of(c)->job)
		step_job_start(c->loop, sampler_of(c)->job, &sample_ops, c);
	else
		next_turn(c);
}

void sampler_add(struct sandbox *s)
{
	struct sampler *sampler = sampler_of(s->service);

	list_add_tail(&sampler->turns[sampler->next_turn++ % SAMPLER_TURNS], &usage_of(s)->turn);
}

void sampler_start(struct service *c, uint32_t step_ms)
{
	sampler_of(c)->step_ms = step_ms;
	loop_timer_start(c->loop, &sampler_of(c)->timer, on_timer, c, step_ms / SAMPLER_TURNS);
}

void sampler_stop(struct service *c)
{
	loop_timer_clear(c->loop, &sampler_of(c)->timer);
	step_job_cancel(sampler_of(c)->job);
	sampler_of(c)->job = NULL;
}

struct memory_use sampler_memory(const struct service *c)
{
	struct memory_use all = {0};

	list_each_of (s, const struct sandbox, link, &c->sandboxes) {
		if (s->state >= SBX_ENDING)
			continue;
		all.private_bytes += s->use.memory.private_bytes;
		all.shared_bytes += s->use.memory.shared_bytes;
	}
	return all;
}
