// SPDX-License-Identifier: Apache-2.0
/*
 * Template life cycle: one template per source and size, found on disk or booted once and saved as
 * an image. Requests for it wait meanwhile; one template boots at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/elements.h"
#include "base/num.h"
#include "base/state-machine.h"
#include "orchestrator/images/template-internal.h"

#define BACKOFF_FIRST_MS 1000
#define BACKOFF_MAX_MS	 60000
/* The maximum number of known templates, not counting those prepared ahead. */
#define ASKED_MAX 32

static const uint8_t next[TPL_NSTATES][TPL_NEVENTS] = {
	[TPL_NEW] = {[TPL_WANTED] = STATE_TO(TPL_CHECKING)},
	[TPL_CHECKING] = {[TPL_FOUND] = STATE_TO(TPL_READY),
			  [TPL_MISSING] = STATE_TO(TPL_QUEUED),
			  [TPL_CLEANED] = STATE_TO(TPL_NEW),
			  [TPL_FAIL] = STATE_TO(TPL_FAILED)},
	[TPL_QUEUED] = {[TPL_TURN] = STATE_TO(TPL_BUILDING),
			[TPL_UNWANTED] = STATE_TO(TPL_NEW),
			[TPL_FAIL] = STATE_TO(TPL_FAILED)},
	[TPL_BUILDING] = {[TPL_SAVED] = STATE_TO(TPL_PUBLISHING),
			  [TPL_YIELD] = STATE_TO(TPL_CHECKING),
			  [TPL_FAIL] = STATE_TO(TPL_FAILED)},
	[TPL_PUBLISHING] =
		{[TPL_PUBLISHED] = STATE_TO(TPL_READY), [TPL_FAIL] = STATE_TO(TPL_FAILED)},
	[TPL_READY] = {[TPL_SPOILT] = STATE_TO(TPL_NEW)},
	[TPL_FAILED] = {[TPL_WANTED] = STATE_TO(TPL_CHECKING)},
};
static const struct state_machine machine = STATE_MACHINE("template", next);

/* Moves to the next state. The event must be legal in the current one. */
static void step(struct template *t, enum template_event event)
{
	t->state = (enum template_state)state_after(&machine, t->state, event);
}

/* Moves if the event is legal in this state, and returns whether it is. */
static bool try_step(struct template *t, enum template_event event)
{
	return state_try(&machine, &t->state, event);
}

bool template_ready(const struct template *t)
{
	return t->state == TPL_READY;
}

const char *template_error(const struct template *t)
{
	return t->state == TPL_FAILED ? t->failure.text : "";
}

const struct source *template_source(const struct template *t)
{
	return &t->source;
}

const struct size *template_size(const struct template *t)
{
	return &t->size;
}

/* --- waiting -------------------------------------------------------------------------------- */

static void notify(void *arg)
{
	struct template_wait *w = arg;

	w->fn(w->arg, w->failed ? &w->failure : NULL);
}

static void answer(struct template_wait *w, const struct failure *f)
{
	list_del(&w->link);
	w->failed = f != NULL;
	if (f)
		w->failure = *f;
	deferred_run(w->template->templates->env->deferred, &w->deferred, notify, w);
}

static void answer_all(struct template *t, const struct failure *f)
{
	list_drain_of (w, struct template_wait, link, &t->waits)
		answer(w, f);
}

void template_unwait(struct template_wait *w)
{
	deferred_cancel(&w->deferred);
	if (list_empty(&w->link))
		return;
	list_del(&w->link);
	build_set_priority(w->template->templates);
}

/* --- life cycle ------------------------------------------------------------------------------- */

static void want(struct template *t);

/* Retries the default template. Others are retried when they are requested. */
static void retry(void *arg)
{
	struct template *t = arg;

	if (t == t->templates->def)
		want(t);
}

void template_fail(struct template *t, const char *text)
{
	struct templates *ts = t->templates;

	if (!try_step(t, TPL_FAIL))
		return;
	t->backoff_ms = backoff_next(t->backoff_ms, BACKOFF_FIRST_MS, BACKOFF_MAX_MS);
	failure_set(&t->failure, FAIL_TEMPLATE_FAILED, t->backoff_ms / 1000,
		    "the template can't be prepared: %s", text);
	log_error("template %s with %u vCPUs, %u MiB can't be prepared: %s", t->source.name,
		  t->size.vcpus, t->size.ram_mib, text);
	list_del(&t->queue_link);
	answer_all(t, &t->failure);
	if (!templates_closing(ts))
		loop_timer_set(ts->env->loop, &t->retry, t->backoff_ms);
	if (ts->building == t) {
		ts->building = NULL;
		template_next_build(ts);
	}
}

static void become_ready(struct template *t, const char *how)
{
	t->backoff_ms = 0;
	t->discard = false;
	t->bad_in_row = 0;
	log_info("template %s %s", t->name, how);
	answer_all(t, NULL);
	t->templates->env->ops->changed(t->templates->env->arg);
}

/* Lists the images prepared ahead: they stay on disk whether they are used or not. */
static void list_kept(const struct templates *ts, struct template_job *job)
{
	list_each_of (t, const struct template, link, &ts->all)
		if ((t->ahead || t == ts->def) && t->name[0] && job->n_keep < TEMPLATE_KEEP_MAX)
			memcpy(job->keep[job->n_keep++], t->name, sizeof(t->name));
}

static struct template_job *job_new(struct template *t)
{
	struct template_job *job = must_alloc(sizeof(*job));

	job->config = *t->templates->env->config;
	job->source = t->source;
	job->size = t->size;
	job->discard = t->discard;
	snprintf(job->dir, sizeof(job->dir), "%s/templates", job->config.state_dir);
	memcpy(job->name, t->name, sizeof(job->name));
	list_kept(t->templates, job);
	return job;
}

static void job_free(void *arg)
{
	struct template_job *job = arg;

	vmproc_image_put(job->image);
	free(job);
}

/* Starts a job on a worker. Takes over `image`, which is NULL unless the job publishes it. */
static void start_job(struct template *t, struct vmproc_image *image,
		      const struct step_job_ops *ops)
{
	t->job = job_new(t);
	t->job->image = image;
	step_job_start(t->templates->env->loop, t->job, ops, t);
}

static void on_checked(void *owner, void *arg)
{
	const struct template_job *job = arg;
	struct template *t = owner;
	struct templates *ts = t->templates;

	t->job = NULL;
	memcpy(t->name, job->name, sizeof(t->name));
	t->source.stamp = job->source.stamp;
	if (job->remark[0])
		log_warn("template %s is being rebuilt: %s", job->name, job->remark);
	if (job->job.ret < 0) {
		template_fail(t, job->job.err.text);
	} else if (job->found) {
		step(t, TPL_FOUND);
		t->bytes = job->bytes;
		t->built_here = false;
		become_ready(t, "was found on disk");
	} else {
		step(t, TPL_MISSING);
		list_add_tail(&ts->builds, &t->queue_link);
		template_next_build(ts);
		build_set_priority(ts);
	}
}

static const struct step_job_ops check_ops = {LOOP_BULK, template_files_check, NULL, on_checked,
					      job_free};

static void want(struct template *t)
{
	if (templates_closing(t->templates) || !try_step(t, TPL_WANTED))
		return;
	loop_timer_clear(t->templates->env->loop, &t->retry);
	free(t->reason);
	t->reason = NULL;
	start_job(t, NULL, &check_ops);
}

bool template_is_background(const struct template *t)
{
	list_each (pos, &t->waits)
		if (pos != &t->templates->ahead_wait.link)
			return false;
	return t != t->templates->def;
}

/* Dequeues templates that nobody holds. Returns the first that may boot now, or NULL. A template
 * that no request waits for boots only when the service is calm. */
static struct template *find_wanted(struct templates *ts)
{
	list_each_of_safe (t, struct template, queue_link, &ts->builds) {
		if (!t->uses) {
			list_del(&t->queue_link);
			step(t, TPL_UNWANTED);
		} else if (!template_is_background(t) || templates_calm(ts)) {
			return t;
		}
	}
	return NULL;
}

void templates_hold(struct templates *ts)
{
	struct template *t = ts->building;

	if (t && t->build)
		build_hold(t->build, template_is_background(t) && !templates_calm(ts));
}

static void on_yielded(void *owner, void *job)
{
	struct template *t = owner;

	t->job = NULL;
	step(t, TPL_CLEANED);
	if (!list_empty(&t->waits))
		want(t); /* requested while its build was being removed */
}

static const struct step_job_ops yield_ops = {LOOP_BULK, template_files_clean, NULL, on_yielded,
					      job_free};

bool templates_yield(struct templates *ts)
{
	struct template *t = ts->building;

	if (!t || templates_closing(ts) || !template_is_background(t) || !t->build ||
	    !build_has_vm(t->build) || !try_step(t, TPL_YIELD))
		return false;
	log_info("template %s: its build is cancelled in favor of a request", t->name);
	build_free(t->build);
	ts->building = NULL;
	if (t == ts->ahead) {
		template_unwait(&ts->ahead_wait);
		ts->ahead = NULL;
		template_put(t);
	}
	start_job(t, NULL, &yield_ops);
	return true;
}

void template_next_build(struct templates *ts)
{
	struct template *t = templates_closing(ts) ? NULL : find_wanted(ts);

	if (!t || (ts->building && (template_is_background(t) || !templates_yield(ts))))
		return;
	list_del(&t->queue_link);
	ts->building = t;
	step(t, TPL_TURN);
	log_info("template %s: booting", t->name);
	build_start(t);
}

static void on_published(void *owner, void *arg)
{
	const struct template_job *job = arg;
	struct template *t = owner;
	struct templates *ts = t->templates;

	t->job = NULL;
	if (job->job.ret < 0) {
		template_fail(t, job->job.err.text);
		return;
	}
	step(t, TPL_PUBLISHED);
	t->bytes = job->bytes;
	t->built_here = true;
	ts->building = NULL;
	ts->boots++;
	templates_note_unlisted(ts, t);
	become_ready(t, "is ready");
	template_next_build(ts);
}

static const struct step_job_ops publish_ops = {LOOP_BULK, template_files_publish, NULL,
						on_published, job_free};

void template_built(struct template *t, struct vmproc_image *image)
{
	step(t, TPL_SAVED);
	start_job(t, image, &publish_ops);
}

/* Nobody needs the result of this job: the next check removes files that are left. */
static const struct step_job_ops clean_ops = {LOOP_BULK, template_files_clean, NULL, NULL,
					      job_free};

void template_close(struct template *t, const struct failure *f)
{
	loop_timer_clear(t->templates->env->loop, &t->retry);
	answer_all(t, f);
	if (t->build) {
		build_free(t->build);
		step_job_start(t->templates->env->loop, job_new(t), &clean_ops, NULL);
	}
}

void template_free(struct template *t)
{
	step_job_cancel(t->job);
	if (t->build)
		build_free(t->build);
	list_del(&t->link);
	list_del(&t->queue_link);
	loop_timer_clear(t->templates->env->loop, &t->retry);
	disk_job_cancel(t->disk_check);
	free(t->reason);
	free(t);
}

/* Forgets an unused template when too many are known; its image stays on disk. Returns false when
 * all are in use. */
static bool make_room(struct templates *ts)
{
	size_t asked = 0;

	list_each_of (t, struct template, link, &ts->all)
		asked += !t->ahead;
	if (asked < ASKED_MAX)
		return true;
	list_each_of (t, struct template, link, &ts->all) {
		if (!t->ahead && !t->uses && !t->job && !t->build) {
			template_free(t);
			return true;
		}
	}
	return false;
}

struct template *template_find(struct templates *ts, const char *name, const struct size *size)
{
	list_each_of (t, struct template, link, &ts->all)
		if (!strcmp(t->source.name, name) && size_equal(&t->size, size))
			return t;
	return NULL;
}

static struct template *template_new(struct templates *ts, const struct source *from,
				     const struct size *size)
{
	struct template *t = must_alloc(sizeof(*t));

	t->templates = ts;
	t->source = *from;
	t->size = *size;
	t->retry = (struct loop_timer){.fn = retry, .arg = t};
	return t;
}

struct template *template_get(struct templates *ts, const struct source *from,
			      const struct size *size)
{
	struct template *t = template_find(ts, from->name, size);

	if (!t && make_room(ts))
		t = template_new(ts, from, size);
	if (!t)
		return NULL;
	list_del(&t->link);
	list_add_tail(&ts->all, &t->link);
	bool old = t->state == TPL_READY && !source_stamp_equal(&from->stamp, &t->source.stamp);
	if (old || t->state == TPL_NEW || t->state == TPL_FAILED)
		t->source = *from;
	if (old)
		template_spoil(t);
	return template_hold(t);
}

struct template *template_hold(struct template *t)
{
	t->uses++;
	return t;
}

void template_put(struct template *t)
{
	t->uses--;
}

void template_wait(struct template *t, struct template_wait *w,
		   void (*fn)(void *arg, const struct failure *f), void *arg)
{
	w->template = t;
	w->fn = fn;
	w->arg = arg;
	list_init(&w->link);
	if (t->state == TPL_READY) {
		answer(w, NULL);
	} else if (t->state == TPL_FAILED && loop_timer_is_set(&t->retry)) {
		answer(w, &t->failure);
	} else {
		list_add_tail(&t->waits, &w->link);
		want(t);
		/* Somebody waits now: the build of `t` is not background work any more. */
		templates_hold(t->templates);
		template_next_build(t->templates);
		build_set_priority(t->templates);
	}
}

void template_spoil(struct template *t)
{
	if (!try_step(t, TPL_SPOILT))
		return;
	t->bad_in_row = 0;
	want(t);
}
