// SPDX-License-Identifier: Apache-2.0
/*
 * Writes checkpoints to disk in the background, one at a time and oldest first, as a freeze writes
 * a Space, and then frees their memory. A checkpoint that can't be written now stays in memory,
 * and comes after the others. A checkpoint from which sandboxes are being started is passed over
 * until they have begun.
 */
#include <string.h>

#include "base/elements.h"
#include "base/log.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-files.h"

#define RETRY_MS 10000
/* Sandboxes are often started from a checkpoint as soon as it is taken, and a write would slow the
 * starts down. */
#define WRITE_AFTER_MS 20

static struct checkpoint *first_of(const struct snapshot_service *of)
{
	return container_of(of->unwritten.next, struct checkpoint, unwritten);
}

static void retry_later(struct checkpoint *k, const char *text)
{
	struct service *c = k->space->service;
	struct snapshot_service *of = snapshots_of_service(c);

	log_warn("checkpoint %s can't be written to disk and stays in memory: %s", k->space->id,
		 text);
	list_del(&k->unwritten);
	list_add_tail(&of->unwritten, &k->unwritten);
	of->write_at_ms = loop_now_ms(c->loop) + RETRY_MS;
}

/* Records that the files are on disk, with the sizes of the checkpoint's own and of shared ones. */
static int record(struct checkpoint *k, const struct space_write *w, struct err *e)
{
	struct space *p = k->space;
	const struct store_checkpoint more = {.shared_bytes = w->shared_bytes};
	struct store_space row = space_row(p);

	row.size_bytes = w->size_bytes;
	row.checkpoint = &more;
	int ret = store_checkpoint_stored(p->service->store, &row, e);
	if (ret < 0)
		return ret;
	k->shared_bytes = w->shared_bytes;
	space_resize(p, w->size_bytes);
	return 0;
}

static void on_written(void *owner, void *job)
{
	struct service *c = owner;
	struct space_write *w = job;
	struct snapshot_service *of = snapshots_of_service(c);
	struct checkpoint *k = first_of(of);
	struct err e;

	of->writing = NULL;
	if (w->job.ret < 0) {
		retry_later(k, w->job.err.text);
	} else if (record(k, w, &e) < 0) {
		space_files_drop(c, k->space->id);
		retry_later(k, e.text);
	} else {
		list_del(&k->unwritten);
		log_info("checkpoint %s: written to disk, %llu KiB", k->space->id,
			 (unsigned long long)w->size_bytes >> 10);
		checkpoint_give_back(k);
	}
	checkpoint_write_next(c);
}

static const struct step_job_ops write_ops = {LOOP_BULK, space_write_step, space_write_undo,
					      on_written, space_write_free};

static void begin(struct checkpoint *k)
{
	struct space *p = k->space;
	struct service *c = p->service;
	struct space_write *w =
		space_write_new(c->config.state_dir, p->sandbox, vmproc_image_get(k->image));
	struct space_manifest *m = &w->manifest;

	memcpy(m->image.name, p->id, sizeof(p->id));
	memcpy(m->template, p->config.template, sizeof(m->template));
	m->size = p->config.size;
	m->guest_busy = k->guest_busy;
	if (exec_point_copy(&m->call, &k->call) < 0) {
		space_write_free(w);
		retry_later(k, "no memory");
		return;
	}
	snapshots_of_service(c)->writing = w;
	step_job_start(c->loop, w, &write_ops, c);
}

/* Moves the first checkpoint that nobody uses to the front, where first_of finds it. Returns the
 * checkpoint, or NULL. */
static struct checkpoint *choose(struct snapshot_service *of)
{
	list_each_of (k, struct checkpoint, unwritten, &of->unwritten) {
		if (k->space->users)
			continue;
		list_del(&k->unwritten);
		list_add_tail(list_next(&of->unwritten), &k->unwritten);
		return k;
	}
	return NULL;
}

void checkpoint_write_next(struct service *c)
{
	struct snapshot_service *of = snapshots_of_service(c);

	if (of->writing || c->closing || c->template_env.ops->disk_is_low(c->template_env.arg) ||
	    loop_now_ms(c->loop) < of->write_at_ms)
		return;
	struct checkpoint *k = choose(of);
	if (k)
		begin(k);
}

static void on_time(void *arg)
{
	checkpoint_write_next(arg);
}

void checkpoint_write_soon(struct service *c)
{
	struct loop_timer *t = &snapshots_of_service(c)->write_soon;

	if (!loop_timer_is_set(t))
		loop_timer_start(c->loop, t, on_time, c, WRITE_AFTER_MS);
}

void checkpoint_write_stop(struct checkpoint *k)
{
	struct snapshot_service *of = snapshots_of_service(k->space->service);

	if (!of->writing || first_of(of) != k)
		return;
	step_job_cancel(of->writing);
	of->writing = NULL;
}
