// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the catalogue to disk. The loop changes a live copy of it in memory. Worker threads bring
 * the file on disk up to date, one job at a time: GATHER_MS after the first change, or at once when
 * a caller waits for the disk. A failed write is retried.
 */
#include "orchestrator/sandbox/catalogue.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/num.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"

#define GATHER_MS      20 /* changes within this time are written together */
#define RETRY_FIRST_MS 100
#define RETRY_MAX_MS   10000
#define BEHIND_MAX_MS  30000 /* from then on, catalogue_error reports the disk */

struct catalogue_job {
	struct service *service; /* NULL: the service was freed */
	struct store *store;
	struct store_batch *batch;
	bool sync;
	int ret;
	struct err err;
};

struct catalogue_sync {
	struct list link;      /* on service->catalogue.syncs */
	bool under_way;	       /* the job in progress reports the result */
	catalogue_sync_fn *fn; /* NULL: cancelled */
	void *arg;
};

static void write_now(void *arg);

static void write_in(struct service *c, uint32_t ms)
{
	c->catalogue.timer.fn = write_now;
	c->catalogue.timer.arg = c;
	if (!loop_timer_is_set(&c->catalogue.timer))
		loop_timer_set(c->loop, &c->catalogue.timer, ms);
}

/* --- the job -------------------------------------------------------------------------------- */

static void note_result(struct service *c, const struct catalogue_job *job)
{
	if (job->ret == 0) {
		if (c->catalogue.retry_ms)
			log_info("the catalogue can be written to disk again");
		c->catalogue.retry_ms = 0;
		c->catalogue.behind_since_ms = store_is_behind(c->store) ? loop_now_ms(c->loop) : 0;
		return;
	}
	if (!c->catalogue.retry_ms)
		log_error("the catalogue can't be written to disk, retrying: %s", job->err.text);
	c->catalogue.retry_ms = backoff_next(c->catalogue.retry_ms, RETRY_FIRST_MS, RETRY_MAX_MS);
}

/* Finishes the syncs that the job covered, in the order of their requests. */
static void finish_syncs(struct service *c, int error)
{
	list_drain_of (sync, struct catalogue_sync, link, &c->catalogue.syncs) {
		if (!sync->under_way)
			return;
		list_del(&sync->link);
		if (sync->fn)
			sync->fn(sync->arg, error);
		free(sync);
	}
}

static void work(void *arg)
{
	struct catalogue_job *job = arg;

	job->ret = store_write(job->store, job->batch, job->sync, &job->err);
}

static void on_written(void *arg)
{
	struct catalogue_job *job = arg;
	struct service *c = job->service;

	store_written(job->store, job->batch, job->ret);
	if (c) {
		c->catalogue.job = NULL;
		note_result(c, job);
		finish_syncs(c, job->ret);
		if (!list_empty(&c->catalogue.syncs))
			write_now(c);
		else if (store_is_behind(c->store))
			write_in(c, c->catalogue.retry_ms ? c->catalogue.retry_ms : GATHER_MS);
	} else {
		store_close(job->store);
	}
	free(job);
}

/* Starts a job. If one is in progress, does nothing: on_written starts the next one if needed. */
static void write_now(void *arg)
{
	struct service *c = arg;

	loop_timer_clear(c->loop, &c->catalogue.timer);
	if (c->catalogue.job)
		return;
	struct catalogue_job *job = must_alloc(sizeof(*job));
	*job = (struct catalogue_job){
		.service = c, .store = c->store, .batch = store_take(c->store)};
	job->sync = !list_empty(&c->catalogue.syncs);
	if (job->batch && loop_work(c->loop, LOOP_DISK, work, on_written, job) == 0) {
		list_each_of (sync, struct catalogue_sync, link, &c->catalogue.syncs)
			sync->under_way = true;
		c->catalogue.job = job;
		return;
	}
	if (job->batch)
		store_written(c->store, job->batch, -ENOMEM);
	free(job);
	write_in(c, RETRY_FIRST_MS);
}

static void on_changed(void *arg)
{
	struct service *c = arg;

	if (!c->catalogue.behind_since_ms)
		c->catalogue.behind_since_ms = loop_now_ms(c->loop);
	if (!c->catalogue.job && !c->catalogue.retry_ms)
		write_in(c, GATHER_MS);
}

/* --- waiting for the disk ------------------------------------------------------------------- */

struct catalogue_sync *catalogue_sync(struct service *c, catalogue_sync_fn *fn, void *arg)
{
	struct catalogue_sync *sync = must_alloc(sizeof(*sync));

	*sync = (struct catalogue_sync){.fn = fn, .arg = arg};
	list_add_tail(&c->catalogue.syncs, &sync->link);
	deferred_run(&c->deferred, &c->catalogue.sync_deferred, write_now, c);
	return sync;
}

void catalogue_sync_cancel(struct catalogue_sync *sync)
{
	if (sync)
		sync->fn = NULL;
}

static void on_op_synced(void *arg, int error)
{
	struct op *op = arg;
	struct failure f;

	failure_set(&f, FAIL_CATALOGUE, 0,
		    "the change is in effect, but the disk has not stored it and a power failure "
		    "may undo it: %s",
		    strerror(-error));
	op_finish(op, error ? &f : NULL);
}

struct op *service_sync(struct service *c, service_done_fn *fn, void *arg)
{
	struct op *op = op_new(c, &op_plain, arg);

	op->done_fn = fn;
	list_add_tail(&c->waits, &op->link);
	catalogue_sync(c, on_op_synced, op);
	return op;
}

/* --- start and end -------------------------------------------------------------------------- */

int catalogue_open(struct service *c, struct err *e)
{
	char path[CATALOGUE_PATH_MAX], live[CATALOGUE_PATH_MAX], journals[CATALOGUE_PATH_MAX];

	/* Make the folder of the live copy. If only root can make it, the warden has done so. */
	snprintf(journals, sizeof(journals), "%s/journals", c->config.run_dir);
	mkdir(journals, 0700);
	config_catalogue(&c->config, path);
	config_live_catalogue(&c->config, live);
	int ret = store_open_live(&c->store, path, live, e);
	if (ret < 0)
		return ret;
	store_watch(c->store, on_changed, c);
	if (store_is_behind(c->store))
		on_changed(c);
	return 0;
}

void catalogue_close(struct service *c)
{
	loop_timer_clear(c->loop, &c->catalogue.timer);
	list_drain_of (sync, struct catalogue_sync, link, &c->catalogue.syncs) {
		list_del(&sync->link);
		free(sync);
	}
	if (!c->store)
		return;
	store_watch(c->store, NULL, NULL);
	/* A job in progress closes the store when it ends. */
	if (c->catalogue.job)
		c->catalogue.job->service = NULL;
	else
		store_close(c->store);
}

const char *catalogue_error(const struct service *c, char *text, size_t size)
{
	uint64_t ms = c->catalogue.behind_since_ms
			      ? loop_now_ms(c->loop) - c->catalogue.behind_since_ms
			      : 0;

	if (ms <= BEHIND_MAX_MS)
		return NULL;
	snprintf(text, size,
		 "the catalogue in state_dir is %llu s old: the disk may be full or stuck",
		 (unsigned long long)ms / 1000);
	return text;
}
