// SPDX-License-Identifier: Apache-2.0
/* Copies the catalogue to a file, in steps, so that the worker threads stay available for other
 * jobs between two steps. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/sandbox/call.h"
#include "orchestrator/sandbox/catalogue.h"
#include "orchestrator/sandbox/context.h"

/* A backup in progress; afterwards its result, until the caller has received it. */
struct backup {
	struct core *core;	/* NULL: the core was freed */
	struct core_call *call; /* NULL: the call was freed, nobody waits */
	struct loop *loop;
	char path[CATALOGUE_PATH_MAX], to[CONFIG_PATH_MAX + 16];
	struct catalogue_sync *sync; /* updates the file on disk, which is then copied */
	struct store_backup *copy;
	int ret; /* of the last step; 1: the copy is complete */
	bool given_up, over;
	int fd;
	struct err err;
};

struct backup_call {
	struct core_call call;
	core_backup_fn *fn;
	struct backup *backup; /* NULL when it could not begin, or the call is over */
};

static struct backup_call *backup_call_of(const struct core_call *call)
{
	return container_of(call, struct backup_call, call);
}

static void copy_path(const struct core *c, char out[static CONFIG_PATH_MAX + 16])
{
	snprintf(out, CONFIG_PATH_MAX + 16, "%s/backup.tmp", c->config.state_dir);
}

static void job_free(struct backup *job)
{
	close_fd(&job->fd);
	free(job);
}

static void work(void *arg)
{
	struct backup *job = arg;

	if (!job->given_up && job->copy)
		job->ret = store_backup_step(job->copy, &job->err);
	else if (!job->given_up)
		job->ret = store_backup_new(&job->copy, job->path, job->to, &job->err);
	if (!job->copy || (job->ret == 0 && !job->given_up))
		return;
	job->fd = store_backup_end(job->copy);
	job->copy = NULL;
}

static void on_step(void *arg)
{
	struct backup *job = arg;
	struct failure f;

	job->given_up = !job->call;
	if (job->copy || (job->call && job->ret == 0)) {
		if (loop_work(job->loop, LOOP_BULK, work, on_step, job) == 0)
			return;
		err_say(&job->err, ENOMEM, "no memory");
	}
	job->over = true;
	if (job->core)
		job->core->backup = NULL;
	if (job->copy)
		job->fd = store_backup_end(job->copy);
	if (!job->call) {
		job_free(job);
		return;
	}
	failure_set(&f, FAIL_BACKUP_FAILED, 0, "the catalogue can't be copied: %.180s",
		    job->err.text);
	call_finish(job->call, job->ret == 1 ? NULL : &f);
}

static void on_synced(void *arg, int error)
{
	struct backup *job = arg;

	job->sync = NULL;
	if (error)
		job->ret = err_set(&job->err, -error, "write the catalogue to disk");
	if (error || loop_work(job->loop, LOOP_BULK, work, on_step, job) < 0)
		on_step(job);
}

static void backup_notify(struct core_call *call)
{
	if (!call->abandoned)
		backup_call_of(call)->fn(
			call->arg, call->failed ? -1 : take_fd(&backup_call_of(call)->backup->fd),
			call->failed ? &call->failure : NULL);
}

/* Detaches the backup from the call. A copy in progress ends with its next step. */
static void backup_put_away(struct core_call *call)
{
	struct backup *job = backup_call_of(call)->backup;

	if (!job)
		return;
	backup_call_of(call)->backup = NULL;
	job->call = NULL;
	if (job->sync && job->core)
		job->core->backup = NULL;
	if (job->sync)
		catalogue_sync_cancel(job->sync);
	if (job->over || job->sync)
		job_free(job);
}

static const struct call_ops backup_ops = {
	.size = sizeof(struct backup_call),
	.put_away = backup_put_away,
	.notify = backup_notify,
	.abandon = call_free,
};

struct core_call *core_backup(struct core *c, core_backup_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, &backup_ops, arg);
	struct backup *job = must_alloc(sizeof(*job));
	struct failure f;

	backup_call_of(call)->fn = fn;
	list_add_tail(&c->waits, &call->link);
	job->core = c;
	job->call = call;
	job->loop = c->loop;
	job->fd = -1;
	config_catalogue(&c->config, job->path);
	copy_path(c, job->to);
	failure_set(&f, FAIL_IN_USE, 5, "another backup is under way");
	if (!c->backup) {
		c->backup = backup_call_of(call)->backup = job;
		job->sync = catalogue_sync(c, on_synced, job);
		return call;
	}
	job_free(job);
	call_finish(call, &f);
	return call;
}

void backups_free(struct core *c)
{
	if (c->backup)
		c->backup->core = NULL;
	c->backup = NULL;
}

void backup_sweep(const struct core *c)
{
	char path[CONFIG_PATH_MAX + 16];

	copy_path(c, path);
	unlink(path);
}
