// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/io/step-job.h"

#include <errno.h>

static void work(void *arg)
{
	struct step_job *job = arg;

	if (!atomic_load(&job->cancelled)) {
		job->ret = job->ops->step(job);
		return;
	}
	if (job->ops->undo)
		job->ops->undo(job);
	job->ret = -ECANCELED;
}

static bool has_more(const struct step_job *job)
{
	return atomic_load(&job->cancelled) ? job->ret >= 0 && job->ops->undo : job->ret == 0;
}

static void on_step(void *arg);

static bool queue(struct step_job *job)
{
	if (loop_work(job->loop, job->ops->pool, work, on_step, job) == 0)
		return true;
	job->ret = err_say(&job->err, ENOMEM, "no memory for a worker thread");
	return false;
}

static void on_step(void *arg)
{
	struct step_job *job = arg;

	do {
		if (has_more(job) && queue(job))
			return;
		if (!atomic_load(&job->cancelled) && job->ops->done)
			job->ops->done(job->owner, job);
	} while (has_more(job));
	job->ops->free(job);
}

void step_job_start(struct loop *loop, void *arg, const struct step_job_ops *ops, void *owner)
{
	struct step_job *job = arg;

	job->ops = ops;
	job->loop = loop;
	job->owner = owner;
	if (!queue(job))
		loop_timer_start(loop, &job->ended, on_step, job, 0);
}

void step_job_cancel(void *arg)
{
	struct step_job *job = arg;

	if (!job)
		return;
	atomic_store(&job->cancelled, true);
	if (!loop_timer_is_set(&job->ended))
		return; /* a worker has it */
	loop_timer_clear(job->loop, &job->ended);
	on_step(job);
}
