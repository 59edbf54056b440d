// SPDX-License-Identifier: Apache-2.0
/* Copies the catalogue to a file, in steps, so that the worker threads stay available for other
 * jobs between two steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/io/step-job.h"
#include "orchestrator/sandbox/call.h"
#include "orchestrator/sandbox/catalogue.h"
#include "orchestrator/sandbox/context.h"

struct backup {
	struct step_job job;
	struct core *core; /* NULL: the core was freed */
	char path[CATALOGUE_PATH_MAX], to[CONFIG_PATH_MAX + 16];
	struct catalogue_sync *sync; /* updates the file on disk, which is then copied */
	struct store_backup *copy;
	int fd; /* of the complete copy */
};

struct backup_call {
	struct core_call call;
	core_backup_fn *fn;
	struct backup *backup; /* in progress, or NULL */
	int fd;		       /* the result */
};

static struct backup_call *backup_call_of(const struct core_call *call)
{
	return container_of(call, struct backup_call, call);
}

static void copy_path(const struct core *c, char out[static CONFIG_PATH_MAX + 16])
{
	snprintf(out, CONFIG_PATH_MAX + 16, "%s/backup.tmp", c->config.state_dir);
}

/* Ends the copy, whether it is complete or not. */
static void end_copy(void *job)
{
	struct backup *b = job;

	if (b->copy)
		b->fd = store_backup_end(b->copy);
	b->copy = NULL;
}

static int copy_step(void *job)
{
	struct backup *b = job;
	int ret = b->copy ? store_backup_step(b->copy, &b->job.err)
			  : store_backup_new(&b->copy, b->path, b->to, &b->job.err);

	if (ret != 0)
		end_copy(job);
	return ret;
}

static void on_copied(void *owner, void *job)
{
	struct core_call *call = owner;
	struct backup *b = job;
	struct failure f;

	backup_call_of(call)->backup = NULL;
	backup_call_of(call)->fd = take_fd(&b->fd);
	failure_set(&f, FAIL_BACKUP_FAILED, 0, "the catalogue can't be copied: %.180s",
		    b->job.err.text);
	call_finish(call, b->job.ret < 0 ? &f : NULL);
}

/* From here on, another backup may use the same path. */
static void backup_free(void *job)
{
	struct backup *b = job;

	end_copy(job);
	if (b->core)
		b->core->backup = NULL;
	close_fd(&b->fd);
	free(b);
}

static const struct step_job_ops copy_ops = {LOOP_BULK, copy_step, end_copy, on_copied,
					     backup_free};

static void on_synced(void *arg, int error)
{
	struct core_call *call = arg;
	struct backup *b = backup_call_of(call)->backup;
	struct failure f;

	b->sync = NULL;
	if (!error) {
		step_job_start(b->core->loop, b, &copy_ops, call);
		return;
	}
	failure_set(&f, FAIL_BACKUP_FAILED, 0,
		    "the catalogue can't be copied: write the catalogue to disk: %s",
		    strerror(-error));
	call_finish(call, &f);
}

static void backup_notify(struct core_call *call)
{
	if (!call->abandoned)
		backup_call_of(call)->fn(call->arg,
					 call->failed ? -1 : take_fd(&backup_call_of(call)->fd),
					 call->failed ? &call->failure : NULL);
}

/* Detaches the backup from the call. A copy in progress ends with its next step. */
static void backup_put_away(struct core_call *call)
{
	struct backup *b = backup_call_of(call)->backup;

	close_fd(&backup_call_of(call)->fd);
	backup_call_of(call)->backup = NULL;
	if (b && b->job.ops) {
		step_job_cancel(b);
	} else if (b) {
		catalogue_sync_cancel(b->sync);
		backup_free(b);
	}
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
	struct failure f;

	backup_call_of(call)->fn = fn;
	backup_call_of(call)->fd = -1;
	list_add_tail(&c->waits, &call->link);
	if (c->backup) {
		failure_set(&f, FAIL_IN_USE, 5, "another backup is under way");
		call_finish(call, &f);
		return call;
	}
	struct backup *b = must_alloc(sizeof(*b));
	b->core = c;
	b->fd = -1;
	config_catalogue(&c->config, b->path);
	copy_path(c, b->to);
	b->sync = catalogue_sync(c, on_synced, call);
	c->backup = backup_call_of(call)->backup = b;
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
	char path[CONFIG_PATH_MAX + 16], log[sizeof(path) + 4];

	copy_path(c, path);
	unlink(path);
	snprintf(log, sizeof(log), "%s-wal", path);
	unlink(log);
}
