// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/io/disk-job.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/fd.h"

static int work(void *arg)
{
	struct disk_job *job = arg;
	int ret = job->work(job);

	return ret < 0 ? ret : 1;
}

static void done(void *owner, void *arg)
{
	struct disk_job *job = arg;

	job->done(owner, job);
}

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
static void close_job(void *arg)
{
	struct disk_job *job = arg;

	if (!has_open(job) || loop_work(job->job.loop, LOOP_DISK, close_all, free_job, job) < 0)
		free_job(job);
}

static struct disk_job *job_new(struct loop *loop, unsigned n)
{
	struct disk_job *job = must_alloc(sizeof(*job) + n * sizeof(job->fds[0]));

	job->job.loop = loop;
	job->n = n;
	for (unsigned i = 0; i < n; i++)
		job->fds[i] = -1;
	return job;
}

struct disk_job *disk_job_start(struct loop *loop, int (*start)(struct disk_job *job), void *what,
				unsigned n_fds, void (*on_done)(void *arg, struct disk_job *job),
				void *arg)
{
	static const struct step_job_ops ops = {LOOP_DISK, work, NULL, done, close_job};
	struct disk_job *job = job_new(loop, n_fds);

	job->work = start;
	job->what = what;
	job->done = on_done;
	step_job_start(loop, job, &ops, arg);
	return job;
}

void disk_job_cancel(struct disk_job *job)
{
	step_job_cancel(job);
}

void disk_close(struct loop *loop, int *fd)
{
	if (*fd < 0)
		return;
	struct disk_job *job = job_new(loop, 1);
	job->fds[0] = take_fd(fd);
	close_job(job);
}
