// SPDX-License-Identifier: Apache-2.0
/* Copies the catalogue to a file, in steps, so that the worker threads stay available for other
 * jobs between two steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/io/step-job.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/catalogue.h"
#include "orchestrator/service/service.h"
#include "orchestrator/service/upkeep.h"

struct backup {
	struct step_job job;
	struct service *service; /* NULL: the service was freed */
	char path[CATALOGUE_PATH_MAX], to[CONFIG_PATH_MAX + 16];
	struct catalogue_sync *sync; /* updates the file on disk, which is then copied */
	struct store_backup *copy;
	int fd; /* of the complete copy */
};

struct backup_op {
	struct op op;
	service_backup_fn *fn;
	struct backup *backup; /* in progress, or NULL */
	int fd;		       /* the result */
};

static struct backup_op *backup_op_of(const struct op *op)
{
	return container_of(op, struct backup_op, op);
}

static void copy_path(const struct service *c, char out[static CONFIG_PATH_MAX + 16])
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
	struct op *op = owner;
	struct backup *b = job;
	struct failure f;

	backup_op_of(op)->backup = NULL;
	backup_op_of(op)->fd = take_fd(&b->fd);
	failure_set(&f, FAIL_BACKUP_FAILED, 0, "the catalogue can't be copied: %.180s",
		    b->job.err.text);
	op_finish(op, b->job.ret < 0 ? &f : NULL);
}

/* From here on, another backup may use the same path. */
static void backup_free(void *job)
{
	struct backup *b = job;

	end_copy(job);
	if (b->service)
		upkeep_of(b->service)->backup = NULL;
	close_fd(&b->fd);
	free(b);
}

static const struct step_job_ops copy_ops = {LOOP_BULK, copy_step, end_copy, on_copied,
					     backup_free};

static void on_synced(void *arg, int error)
{
	struct op *op = arg;
	struct backup *b = backup_op_of(op)->backup;
	struct failure f;

	b->sync = NULL;
	if (!error) {
		step_job_start(b->service->loop, b, &copy_ops, op);
		return;
	}
	failure_set(&f, FAIL_BACKUP_FAILED, 0,
		    "the catalogue can't be copied: write the catalogue to disk: %s",
		    strerror(-error));
	op_finish(op, &f);
}

static void backup_notify(struct op *op)
{
	if (!op->abandoned)
		backup_op_of(op)->fn(op->arg, op->failed ? -1 : take_fd(&backup_op_of(op)->fd),
				     op->failed ? &op->failure : NULL);
}

/* Detaches the backup from the call. A copy in progress ends with its next step. */
static void backup_put_away(struct op *op)
{
	struct backup *b = backup_op_of(op)->backup;

	close_fd(&backup_op_of(op)->fd);
	backup_op_of(op)->backup = NULL;
	if (b && b->job.ops) {
		step_job_cancel(b);
	} else if (b) {
		catalogue_sync_cancel(b->sync);
		backup_free(b);
	}
}

static const struct op_methods backup_ops = {
	.size = sizeof(struct backup_op),
	.put_away = backup_put_away,
	.notify = backup_notify,
	.abandon = op_free,
};

struct op *service_backup(struct service *c, service_backup_fn *fn, void *arg)
{
	struct op *op = op_new(c, &backup_ops, arg);
	struct failure f;

	backup_op_of(op)->fn = fn;
	backup_op_of(op)->fd = -1;
	list_add_tail(&c->waits, &op->link);
	if (upkeep_of(c)->backup) {
		failure_set(&f, FAIL_IN_USE, 5, "another backup is under way");
		return op_finish(op, &f);
	}
	struct backup *b = must_alloc(sizeof(*b));
	b->service = c;
	b->fd = -1;
	config_catalogue(&c->config, b->path);
	copy_path(c, b->to);
	b->sync = catalogue_sync(c, on_synced, op);
	upkeep_of(c)->backup = backup_op_of(op)->backup = b;
	return op;
}

void backups_free(struct service *c)
{
	struct backup *b = upkeep_of(c)->backup;

	if (b)
		b->service = NULL;
}

void backup_sweep(const struct service *c)
{
	char path[CONFIG_PATH_MAX + 16];

	copy_path(c, path);
	store_remove(path);
}
