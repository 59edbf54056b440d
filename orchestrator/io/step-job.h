// SPDX-License-Identifier: Apache-2.0
/*
 * Work for one owner on a worker thread, in steps: between two steps, the thread serves other jobs.
 * A job is a struct whose first member is a struct step_job; the callbacks get it as `job`. It may
 * outlive its owner.
 */
#ifndef RAMET_ORCHESTRATOR_IO_STEP_JOB_H
#define RAMET_ORCHESTRATOR_IO_STEP_JOB_H

#include <stdatomic.h>

#include "base/err.h"
#include "orchestrator/io/loop.h"

struct step_job_ops {
	enum loop_pool pool;
	/* On a worker. Returns 0 when there is more to do, 1 at the end, or -errno with `err`
	 * filled. */
	int (*step)(void *job);
	/* On a worker, after the last step of a cancelled job that has not failed; may be NULL. */
	void (*undo)(void *job);
	/* On the loop, after the last step, unless the job was cancelled; may be NULL. Another step
	 * follows if it sets job->ret to 0. */
	void (*done)(void *owner, void *job);
	void (*free)(void *job); /* on the loop, at the end of each job */
};

/* Zeroed before the start. During a step only the worker uses the job, except for atomic members;
 * at other times it belongs to the loop's thread. */
struct step_job {
	const struct step_job_ops *ops;
	struct loop *loop;
	void *owner;
	atomic_bool cancelled;
	int ret; /* of the last step */
	struct err err;
	struct loop_timer ended; /* set if there was no memory for a worker thread */
};

/* Starts the job and takes ownership of it. If it fails at once, `done` is called later. */
void step_job_start(struct loop *loop, void *job, const struct step_job_ops *ops, void *owner);
/* Cancels the job: no more steps, and `done` is not called. NULL is fine. */
void step_job_cancel(void *job);

#endif
