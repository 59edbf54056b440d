// SPDX-License-Identifier: Apache-2.0
/*
 * Template life cycle: one template per source and size, found on disk or booted once and saved as
 * an image. Requests for it wait meanwhile; one template boots at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "orchestrator/io/disk-job.h"
#include "orchestrator/template/disk-layer.h"
#include "orchestrator/template/host.h"
#include "orchestrator/template/template-internal.h"
#include "proto/agent.h"

#define BACKOFF_FIRST_MS 1000
#define BACKOFF_MAX_MS	 60000
#define BAD_IN_ROW_MAX	 3
/* Templates, except those prepared ahead, that creates may hold or wait for at a time. */
#define ASKED_MAX 32

#define GO(state) ((uint8_t)(state) + 1)
static const uint8_t tpl_next[TPL_NSTATES][TPL_NEVENTS] = {
	[TPL_NEW] = {[TPL_WANTED] = GO(TPL_CHECKING)},
	[TPL_CHECKING] = {[TPL_FOUND] = GO(TPL_READY),
			  [TPL_MISSING] = GO(TPL_QUEUED),
			  [TPL_CLEANED] = GO(TPL_NEW),
			  [TPL_FAIL] = GO(TPL_FAILED)},
	[TPL_QUEUED] = {[TPL_TURN] = GO(TPL_BUILDING),
			[TPL_UNWANTED] = GO(TPL_NEW),
			[TPL_FAIL] = GO(TPL_FAILED)},
	[TPL_BUILDING] = {[TPL_SAVED] = GO(TPL_PUBLISHING),
			  [TPL_YIELD] = GO(TPL_CHECKING),
			  [TPL_FAIL] = GO(TPL_FAILED)},
	[TPL_PUBLISHING] = {[TPL_PUBLISHED] = GO(TPL_READY), [TPL_FAIL] = GO(TPL_FAILED)},
	[TPL_READY] = {[TPL_SPOILT] = GO(TPL_NEW)},
	[TPL_FAILED] = {[TPL_WANTED] = GO(TPL_CHECKING)},
};

bool template_step(struct template *t, enum template_event event)
{
	uint8_t next = tpl_next[t->state][event];

	if (!next)
		return false;
	t->state = (enum template_state)(next - 1);
	return true;
}

bool template_ready(const struct template *t)
{
	return t->state == TPL_READY;
}

const char *template_error(const struct template *t)
{
	return t->state == TPL_FAILED ? t->error_text.text : "";
}

const char *template_name(const struct template *t)
{
	return t->source.name;
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
	while (!list_empty(&t->waits))
		answer(container_of(t->waits.next, struct template_wait, link), f);
}

void template_unwait(struct template_wait *w)
{
	deferred_cancel(&w->deferred);
	if (!w->link.next)
		return;
	list_del(&w->link);
	build_set_priority(w->template->templates);
}

/* --- life cycle ------------------------------------------------------------------------------- */

static void want(struct template *t);

/* Retries the default template; other sizes are retried at the next request. */
static void retry(void *arg)
{
	struct template *t = arg;

	if (t == t->templates->def)
		want(t);
}

void template_fail(struct template *t, const char *text)
{
	struct templates *ts = t->templates;

	if (!template_step(t, TPL_FAIL))
		return;
	t->backoff_ms = t->backoff_ms ? 2 * t->backoff_ms : BACKOFF_FIRST_MS;
	if (t->backoff_ms > BACKOFF_MAX_MS)
		t->backoff_ms = BACKOFF_MAX_MS;
	failure_set(&t->error_text, 503, "template_failed", t->backoff_ms / 1000,
		    "the template can't be prepared: %s", text);
	log_error("template %s with %u vCPUs, %u MiB: %s", t->source.name, t->size.vcpus,
		  t->size.ram_mib, text);
	list_del(&t->queue_link);
	answer_all(t, &t->error_text);
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
	pool_check(t->templates->pool);
}

/* Lists the images prepared ahead: they stay on disk whether they are used or not. */
static void list_kept(const struct templates *ts, struct template_job *job)
{
	list_each (pos, &ts->all) {
		const struct template *t = container_of(pos, struct template, link);

		if ((t->ahead || t == ts->def) && t->name[0] && job->n_keep < TEMPLATE_KEEP_MAX)
			memcpy(job->keep[job->n_keep++], t->name, sizeof(t->name));
	}
}

static struct template_job *job_new(struct template *t)
{
	struct template_job *job = must_alloc(sizeof(*job));

	job->t = t;
	job->config = *t->templates->env->config;
	job->source = t->source;
	job->size = t->size;
	job->discard = t->discard;
	snprintf(job->dir, sizeof(job->dir), "%s/templates", job->config.state_dir);
	memcpy(job->name, t->name, sizeof(job->name));
	memcpy(job->key, t->key, sizeof(job->key));
	list_kept(t->templates, job);
	return job;
}

static void start_job(struct template *t, void (*work)(void *arg), void (*done)(void *arg))
{
	t->job = job_new(t);
	if (loop_work(t->templates->env->loop, LOOP_BULK, work, done, t->job) < 0) {
		free(t->job);
		t->job = NULL;
		template_fail(t, "no memory for a worker thread");
	}
}

static void on_checked(void *arg)
{
	struct template_job *job = arg;
	struct template *t = job->t;

	if (t) {
		struct templates *ts = t->templates;

		t->job = NULL;
		memcpy(t->name, job->name, sizeof(t->name));
		memcpy(t->key, job->key, sizeof(t->key));
		t->stamp = job->source.stamp;
		if (job->remark[0])
			log_warn("template %s is rebuilt: %s", job->name, job->remark);
		if (job->ret < 0) {
			template_fail(t, job->err.text);
		} else if (job->found) {
			template_step(t, TPL_FOUND);
			t->bytes = job->bytes;
			t->built_here = false;
			become_ready(t, "found on disk");
		} else {
			template_step(t, TPL_MISSING);
			list_add_tail(&ts->builds, &t->queue_link);
			template_next_build(ts);
			build_set_priority(ts);
		}
	}
	free(job);
}

static void want(struct template *t)
{
	if (templates_closing(t->templates) || !template_step(t, TPL_WANTED))
		return;
	loop_timer_clear(t->templates->env->loop, &t->retry);
	free(t->reason);
	t->reason = NULL;
	start_job(t, template_files_check, on_checked);
}

bool template_is_background(const struct template *t)
{
	list_each (pos, &t->waits)
		if (pos != &t->templates->ahead_wait.link)
			return false;
	return t != t->templates->def;
}

/* Dequeues templates that nobody holds. Returns the first that may boot now, or NULL. A template
 * that no request waits for boots only when the core is calm. */
static struct template *find_wanted(struct templates *ts)
{
	list_each_safe (pos, &ts->builds) {
		struct template *t = container_of(pos, struct template, queue_link);

		if (!t->uses) {
			list_del(&t->queue_link);
			template_step(t, TPL_UNWANTED);
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

static void on_yielded(void *arg)
{
	struct template_job *job = arg;
	struct template *t = job->t;

	if (t) {
		t->job = NULL;
		template_step(t, TPL_CLEANED);
		if (!list_empty(&t->waits))
			want(t); /* requested while its build was being removed */
	}
	free(job);
}

bool templates_yield(struct templates *ts)
{
	struct template *t = ts->building;

	if (!t || templates_closing(ts) || !template_is_background(t) || !t->build ||
	    !build_has_vm(t->build) || !template_step(t, TPL_YIELD))
		return false;
	log_info("template %s: its build is cancelled in favor of a requested template", t->name);
	build_free(t->build);
	ts->building = NULL;
	if (t == ts->ahead) {
		template_unwait(&ts->ahead_wait);
		ts->ahead = NULL;
		template_put(t);
	}
	start_job(t, template_files_clean, on_yielded);
	return true;
}

void template_next_build(struct templates *ts)
{
	struct template *t = templates_closing(ts) ? NULL : find_wanted(ts);

	if (!t || (ts->building && (template_is_background(t) || !templates_yield(ts))))
		return;
	list_del(&t->queue_link);
	ts->building = t;
	template_step(t, TPL_TURN);
	log_info("template %s: booting", t->name);
	build_start(t);
}

static void on_published(void *arg)
{
	struct template_job *job = arg;
	struct template *t = job->t;

	if (t) {
		struct templates *ts = t->templates;

		t->job = NULL;
		if (job->ret < 0) {
			template_fail(t, job->err.text);
		} else {
			template_step(t, TPL_PUBLISHED);
			t->bytes = job->bytes;
			t->built_here = true;
			ts->building = NULL;
			ts->boots++;
			become_ready(t, "is ready");
			template_next_build(ts);
		}
	}
	free(job);
}

void template_built(struct template *t)
{
	template_step(t, TPL_SAVED);
	start_job(t, template_files_publish, on_published);
}

static void on_cleaned(void *arg)
{
	free(arg);
}

/* Removes the files of an unfinished build. Nobody waits for that: the next check would do the
 * same. */
static void clean(struct template *t)
{
	struct template_job *job = job_new(t);

	job->t = NULL;
	if (loop_work(t->templates->env->loop, LOOP_BULK, template_files_clean, on_cleaned, job) <
	    0)
		free(job);
}

static void template_free(struct template *t)
{
	list_del(&t->link);
	list_del(&t->queue_link);
	loop_timer_clear(t->templates->env->loop, &t->retry);
	disk_job_cancel(t->judging);
	free(t->reason);
	free(t);
}

/* Forgets an unused template when too many are known; its image stays on disk. Returns false when
 * all are in use. */
static bool make_room(struct templates *ts)
{
	size_t asked = 0;

	list_each (pos, &ts->all)
		asked += !container_of(pos, struct template, link)->ahead;
	if (asked < ASKED_MAX)
		return true;
	list_each (pos, &ts->all) {
		struct template *t = container_of(pos, struct template, link);

		if (!t->ahead && !t->uses && !t->job && !t->build) {
			template_free(t);
			return true;
		}
	}
	return false;
}

struct template *template_find(struct templates *ts, const char *name, const struct size *size)
{
	list_each (pos, &ts->all) {
		struct template *t = container_of(pos, struct template, link);

		if (!strcmp(t->source.name, name) && size_equal(&t->size, size))
			return t;
	}
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
	list_init(&t->waits);
	list_init(&t->link);
	list_init(&t->queue_link);
	return t;
}

static void spoil(struct template *t);

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
	bool old = t->state == TPL_READY && !source_stamp_equal(&from->stamp, &t->stamp);
	if (old || t->state == TPL_NEW || t->state == TPL_FAILED)
		t->source = *from;
	if (old)
		spoil(t);
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
	} else if (t->state == TPL_FAILED && t->retry.heap_index) {
		answer(w, &t->error_text);
	} else {
		list_add_tail(&t->waits, &w->link);
		want(t);
		templates_hold(t->templates); /* its build may not be background work any more */
		template_next_build(t->templates);
		build_set_priority(t->templates);
	}
}

/* --- restores ------------------------------------------------------------------------------- */

static void spoil(struct template *t)
{
	if (!template_step(t, TPL_SPOILT))
		return;
	t->bad_in_row = 0;
	want(t);
}

static int look_at_disk(struct disk_job *job)
{
	return disk_is_full(job->what) ? -ENOSPC : 0;
}

/* Discards an image after repeated failures, unless the disk is full: that is not the image's
 * fault. */
static void judge(void *arg, struct disk_job *job)
{
	struct template *t = arg;

	t->judging = NULL;
	if (job->ret < 0)
		t->bad_in_row = 0;
	if (t->bad_in_row < BAD_IN_ROW_MAX)
		return;
	t->discard = true;
	spoil(t);
}

void template_restored(struct template *t, bool well)
{
	t->bad_in_row = well ? 0 : t->bad_in_row + 1;
	if (t->bad_in_row < BAD_IN_ROW_MAX || t->built_here || t->judging)
		return;
	char *dir = strdup(t->templates->env->config->state_dir);
	if (!dir)
		abort();
	t->judging = disk_job_start(t->templates->env->loop, look_at_disk, dir, 0, judge, t);
}

/* What a worker needs to open a template's files. */
struct template_files {
	char dir[2 * CONFIG_PATH_MAX], state_dir[CONFIG_PATH_MAX];
	struct source source;
	struct source_stamp stamp;
	bool evictable; /* mark as used now: eviction takes the least recently used image */
};

static int open_files(struct disk_job *job)
{
	static const char *const names[] = {"state", "memory", NULL, "layer-0"};
	struct template_files *what = job->what;
	struct source_stamp now;
	struct err *e = &job->err;

	scoped_fd int dir = open(what->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_set(e, errno, "open %s", what->dir);
	if (what->evictable)
		futimens(dir, NULL);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *path = names[i] ? names[i] : what->source.rootfs;

		job->fds[i] = openat(names[i] ? dir : AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
		if (job->fds[i] < 0)
			return err_set(e, errno, "open %s", path);
	}
	if (fstat(job->fds[TEMPLATE_MEMORY], &job->memory) < 0)
		return err_set(e, errno, "look at %s", names[TEMPLATE_MEMORY]);
	/* Check the stamp after the open: the image holds only differences from that file. */
	source_stamp(&what->source, &now);
	if (!source_stamp_equal(&now, &what->stamp))
		return err_say(
			e, ENOENT,
			"a source file of template %s was replaced; the template must be rebuilt",
			what->source.name);
	job->fds[4] = disk_layer_new(what->state_dir, e);
	return job->fds[4] < 0 ? job->fds[4] : 0;
}

struct disk_job *template_open(struct template *t, void (*done)(void *arg, struct disk_job *job),
			       void *arg)
{
	struct template_files *what = must_alloc(sizeof(*what));
	const struct config *config = t->templates->env->config;

	snprintf(what->dir, sizeof(what->dir), "%s/templates/%s", config->state_dir, t->name);
	memcpy(what->state_dir, config->state_dir, sizeof(what->state_dir));
	what->source = t->source;
	what->stamp = t->stamp;
	what->evictable = t != t->templates->def;
	return disk_job_start(t->templates->env->loop, open_files, what, TEMPLATE_FDS, done, arg);
}

static int open_memory(struct disk_job *job)
{
	const char *path = job->what;

	job->fds[0] = open(path, O_RDONLY | O_CLOEXEC);
	if (job->fds[0] < 0 || fstat(job->fds[0], &job->memory) < 0)
		return err_set(&job->err, errno, "open %s", path);
	return 0;
}

struct disk_job *template_open_memory(struct template *t,
				      void (*done)(void *arg, struct disk_job *job), void *arg)
{
	char *path = must_alloc(2 * CONFIG_PATH_MAX);

	snprintf(path, 2 * CONFIG_PATH_MAX, "%s/templates/%s/memory",
		 t->templates->env->config->state_dir, t->name);
	return disk_job_start(t->templates->env->loop, open_memory, path, 1, done, arg);
}

/* Discards the image after somebody removed or replaced its files. */
void template_open_failed(struct template *t, int error)
{
	if (error == -ENOENT)
		spoil(t);
}

void template_fill(uint32_t rootfs_gb, struct ctl_msg *fill)
{
	*fill = (struct ctl_msg){.fill = {.kind = CTL_RESTORE,
					  .layers = 1,
					  .disk_bytes = (uint64_t)rootfs_gb << 30}};
}

struct template *templates_default(const struct templates *ts)
{
	return ts->def;
}

struct template *templates_building(const struct templates *ts)
{
	return ts->building;
}

bool templates_are_prepared(const struct templates *ts)
{
	return ts->building || ts->ahead;
}

uint64_t templates_boots(const struct templates *ts)
{
	return ts->boots;
}

/* --- start and end --------------------------------------------------------------------------- */

struct templates *templates_new(const struct template_env *env)
{
	struct templates *ts = must_alloc(sizeof(*ts));

	ts->env = env;
	list_init(&ts->all);
	list_init(&ts->builds);
	list_init(&ts->looks);
	list_init(&ts->next_looks);
	return ts;
}

/* The default template is always kept ready: it retries by itself. */
static void on_default(void *arg, const struct failure *f)
{
}

void templates_start(struct templates *ts)
{
	templates_sweep(ts->env->config);
	recents_load(&ts->recents, ts->env->config);
	ts->busy_ms = loop_now_ms(ts->env->loop);
	sources_load(ts);
	const struct source *from = &ts->sources->all[0].source;
	struct size own = source_size(from);
	ts->def = template_get(ts, from, &own);
	template_wait(ts->def, &ts->def_wait, on_default, ts);
}

void templates_close(struct templates *ts)
{
	struct failure f;

	failure_set(&f, 503, "stopping", 0, "the service is stopping");
	if (ts->ahead)
		template_unwait(&ts->ahead_wait);
	list_each (pos, &ts->all) {
		struct template *t = container_of(pos, struct template, link);

		loop_timer_clear(ts->env->loop, &t->retry);
		answer_all(t, &f);
		if (t->build) {
			build_free(t->build);
			clean(t);
		}
	}
}

void templates_free(struct templates *ts)
{
	if (!ts)
		return;
	template_unwait(&ts->def_wait);
	if (ts->ahead)
		template_unwait(&ts->ahead_wait);
	while (!list_empty(&ts->all)) {
		struct template *t = container_of(ts->all.next, struct template, link);

		if (t->job)
			t->job->t = NULL;
		if (t->build)
			build_free(t->build);
		template_free(t);
	}
	recents_close(&ts->recents);
	sources_free(ts);
	free(ts);
}
