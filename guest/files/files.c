// SPDX-License-Identifier: Apache-2.0
#include "guest/files/files.h"

#include <errno.h>

#include "guest/files/file-work.h"
#include "guest/files/worker-io.h"
#include "guest/files/tree.h"
#include "guest/files/worker.h"

typedef void file_fn(const struct file_work *w);

static file_fn *const functions[] = {
	[AGENT_PUT] = file_put,	      [AGENT_GET] = file_get,	    [AGENT_REMOVE] = file_remove,
	[AGENT_MKDIR] = file_mkdir,   [AGENT_UPLOAD] = file_upload, [AGENT_PART] = file_part,
	[AGENT_COMMIT] = file_commit, [AGENT_ABORT] = file_abort,   [AGENT_MOVE] = file_move,
	[AGENT_CHANGE] = file_change, [AGENT_WALK] = file_walk,	    [AGENT_WRITE] = file_write,
	[AGENT_PACK] = file_pack,     [AGENT_UNPACK] = file_unpack, [AGENT_WATCH] = file_watch,
};

static const struct system_ops *sys;

void files_init(const struct system_ops *the_sys, void (*on_free)(void))
{
	sys = the_sys;
	worker_init(on_free);
}

void files_on_gone(struct conn *c)
{
	worker_on_gone(c);
}

void files_drop_uploads(void)
{
	staged_drop_all();
}

int files_expire(void)
{
	return staged_expire();
}

bool files_takes(uint8_t type)
{
	return type == AGENT_TREE || file_request_is(type);
}

static void run(const void *request)
{
	const struct file_work *w = request;

	if (w->refused)
		file_refuse(w);
	functions[w->r->type](w);
}

static void run_grow(const void *request)
{
	const struct file_request *r = request;
	struct err e;

	if (sys->grow_root(r->size, &e) < 0)
		worker_io_fail(-e.code, "%s", e.text);
	worker_io_done();
}

static void start(struct conn *c, const struct worker_job *job)
{
	struct err e;

	if (worker_start(c, job, &e) == 0)
		return;
	conn_send_error(c, &e);
	/* Data that follows the request was not read, so the connection cannot be used again. */
	conn_become(c, CONN_ENDING);
}

static void start_work(struct conn *c, const struct file_work *w, struct staged *d)
{
	start(c,
	      &(struct worker_job){
		      .run = run, .request = w, .staged = d, .watches = w->r->type == AGENT_WATCH});
}

static void refuse(struct conn *c, const struct file_request *r, const struct err *e)
{
	start_work(c, &(struct file_work){.r = r, .refused = e}, NULL);
}

/* Starts a request that creates a staged file. */
static void start_new(struct conn *c, const struct file_request *r)
{
	struct err e;
	struct staged *d = staged_new(r->type == AGENT_UPLOAD ? r->id : NULL, &e);

	if (!d) {
		refuse(c, r, &e);
		return;
	}
	start_work(c, &(struct file_work){.r = r, .staged = d->file}, d);
	if (!d->workers)
		staged_drop(d);
}

static void start_on(struct conn *c, const struct file_request *r, struct staged *d)
{
	/* A commit and the parts wait for each other: a part that arrived after the check would not
	 * be checked. */
	if (d->commits || (r->type == AGENT_COMMIT && d->workers)) {
		conn_become(c, CONN_WAITING);
		return;
	}
	start_work(c, &(struct file_work){.r = r, .staged = d->file}, d);
	d->commits = r->type == AGENT_COMMIT && d->workers;
}

static void start_abort(struct conn *c, const struct file_request *r, struct staged *d)
{
	if (!d) {
		conn_send(c, AGENT_DONE, NULL, 0);
		conn_become(c, CONN_IDLE);
		return;
	}
	start_work(c, &(struct file_work){.r = r, .staged = d->file}, d);
	staged_drop(d);
}

static void start_upload_step(struct conn *c, const struct file_request *r)
{
	struct staged *d = staged_find(r->id);
	struct err e;

	if (r->type == AGENT_ABORT) {
		start_abort(c, r, d);
	} else if (!d || d->file->state != STAGED_OPEN) {
		err_say(&e, ENOENT, "there is no such upload");
		refuse(c, r, &e);
	} else {
		start_on(c, r, d);
	}
}

static int handle_tree(struct conn *c, const struct frame *f, struct err *e)
{
	struct tree_request r;
	int bad = tree_parse(f, &r, e);

	if (!bad)
		start(c, &(struct worker_job){.run = tree_serve, .request = &r});
	return bad;
}

int files_handle(struct conn *c, const struct frame *f, struct err *e)
{
	struct file_request r;

	if (f->type != AGENT_WATCH && !worker_is_free()) {
		conn_become(c, CONN_WAITING);
		return 0;
	}
	if (f->type == AGENT_TREE)
		return handle_tree(c, f, e);
	int bad = file_request_parse(f, &r, e);
	if (bad)
		return bad;
	if (f->type == AGENT_PUT || f->type == AGENT_UPLOAD || f->type == AGENT_UNPACK)
		start_new(c, &r);
	else if (f->type == AGENT_GROW)
		start(c, &(struct worker_job){.run = run_grow, .request = &r});
	else if (r.id[0])
		start_upload_step(c, &r);
	else
		start_work(c, &(struct file_work){.r = &r}, NULL);
	return 0;
}
