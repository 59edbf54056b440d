// SPDX-License-Identifier: Apache-2.0
#include "guest/files/files.h"

#include "guest/files/file-work.h"
#include "guest/files/worker-io.h"
#include "guest/files/tree.h"
#include "guest/files/worker.h"

typedef void file_fn(const struct file_request *r);

static file_fn *const functions[] = {
#define FUNCTION(type, name, ...) [type] = serve_##name,
	AGENT_FILE_REQUESTS(FUNCTION)
#undef FUNCTION
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

bool files_takes(uint8_t type)
{
	return type == AGENT_TREE || agent_file_is(type);
}

static void run(const void *request)
{
	const struct file_request *r = request;

	functions[r->type](r);
}

void serve_grow(const struct file_request *r)
{
	struct err e;

	if (sys->grow_root(r->size, &e) < 0)
		worker_io_fail_err(&e);
	worker_io_done();
}

/* Starts a worker, or answers with the reason why none could be started. */
static void start(struct conn *c, const struct worker_job *job)
{
	struct err e;

	if (worker_start(c, job, &e) < 0)
		conn_refuse_unread(c, &e);
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
	if (!bad)
		start(c, &(struct worker_job){
				 .run = run, .request = &r, .watches = f->type == AGENT_WATCH});
	return bad;
}
