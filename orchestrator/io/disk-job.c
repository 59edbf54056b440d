// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/io/disk-job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"

static bool has_open(const struct disk_job *job)
{
	for (unsigned i = 0; i < job->n; i++)
		if (job->fds[i] >= 0)
			return true;
	return false;
}

static void close_all(void *arg)
{
	struct disk_job *job = arg;

	for (unsigned i = 0; i < job->n; i++)
		close_fd(&job->fds[i]);
}

static void free_job(void *arg)
{
	struct disk_job *job = arg;

	close_all(job); /* descriptors are open here only if no worker was available */
	if (job->free_what)
		job->free_what(job->what);
	else
		free(job->what);
	free(job);
}

/* Frees the job, after a worker has closed its open descriptors. */
static void job_close(struct disk_job *job)
{
	if (!has_open(job) || loop_work(job->loop, LOOP_DISK, close_all, free_job, job) < 0)
		free_job(job);
}

static void work(void *arg)
{
	struct disk_job *job = arg;

	job->ret = job->work(job);
}

static void on_worked(void *arg)
{
	struct disk_job *job = arg;

	if (!job->cancelled)
		job->done(job->arg, job);
	job_close(job);
}

static struct disk_job *job_new(struct loop *loop, unsigned n)
{
	struct disk_job *job = must_alloc(sizeof(*job) + n * sizeof(job->fds[0]));

	job->loop = loop;
	job->n = n;
	for (unsigned i = 0; i < n; i++)
		job->fds[i] = -1;
	return job;
}

struct disk_job *disk_job_start(struct loop *loop, int (*start)(struct disk_job *job), void *what,
				unsigned n_fds, void (*done)(void *arg, struct disk_job *job),
				void *arg)
{
	struct disk_job *job = job_new(loop, n_fds);

	job->work = start;
	job->what = what;
	job->done = done;
	job->arg = arg;
	if (loop_work(loop, LOOP_DISK, work, on_worked, job) < 0) {
		job->ret = err_say(&job->err, ENOMEM, "no memory for a worker thread");
		loop_timer_start(loop, &job->undone, on_worked, job, 0);
	}
	return job;
}

void disk_job_cancel(struct disk_job *job)
{
	if (!job)
		return;
	job->cancelled = true;
	if (!loop_timer_is_set(&job->undone))
		return; /* a worker runs it; on_worked frees it */
	loop_timer_clear(job->loop, &job->undone);
	free_job(job);
}

void disk_close(struct loop *loop, int *fd)
{
	if (*fd < 0)
		return;
	struct disk_job *job = job_new(loop, 1);
	job->fds[0] = take_fd(fd);
	job_close(job);
}
