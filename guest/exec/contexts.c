// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/contexts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/elements.h"
#include "base/fd.h"
#include "guest/exec/context-request.h"
#include "guest/exec/interpreter.h"
#include "guest/log-console.h"

struct context {
	struct list node;
	char id[AGENT_ID_LEN + 1];
	int64_t started_ms; /* since the epoch */
	bool began;	    /* its interpreter has waited for code once */
	struct driver_launch launch;
	char cwd[AGENT_PATH_MAX + 1];
	char dir[PATH_MAX];
	uint8_t *env;
	struct interpreter interpreter;
};

static struct list contexts = {&contexts, &contexts}; /* oldest first, ended ones included */
static unsigned grace;
static const char *parent_dir;

void contexts_init(unsigned grace_ms, const char *run_dir)
{
	grace = grace_ms;
	parent_dir = run_dir;
}

/* --- records -------------------------------------------------------------------------------- */

/* A file for each context, from which the next agent starts it again if this one is killed: u64
 * start time in ms, then the payload of its AGENT_CONTEXT_START. */
#define RECORD	   ".context"
#define RECORD_MAX (8 + AGENT_PAYLOAD_MAX)

static void record_path(const struct context *x, char path[static PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%s" RECORD, parent_dir, x->id);
}

static void record(const struct context *x)
{
	static uint8_t bytes[RECORD_MAX];
	struct wire w = wire_on(bytes, sizeof(bytes));
	char path[PATH_MAX];

	wire_put_u64(&w, (uint64_t)x->started_ms);
	wire_put_str(&w, x->id, strlen(x->id));
	wire_put_u8(&w, (uint8_t)x->interpreter.driver.language);
	wire_put_str(&w, x->cwd, strlen(x->cwd));
	wire_put_u32(&w, x->launch.env_count);
	wire_put_bytes(&w, x->env, x->launch.env_len);
	record_path(x, path);
	/* Variables may be secrets. */
	scoped_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || write(fd, bytes, w.pos) != (ssize_t)w.pos)
		log_console("write %s: %s", path, strerror(errno));
}

static void forget(const struct context *x)
{
	char path[PATH_MAX];

	record_path(x, path);
	unlink(path);
}

/* --- events of an interpreter --------------------------------------------------------------- */

static struct context *of(struct interpreter *in)
{
	return container_of(in, struct context, interpreter);
}

/* Answers the connections that wait for the interpreter's start. */
static void answer_waiting(const struct interpreter *in, const struct err *e)
{
	list_each_of_safe (c, struct conn, node, &conn_all) {
		if (c->state != CONN_CONTEXT || c->interpreter != in)
			continue;
		if (e)
			conn_refuse(c, e);
		else
			conn_done(c);
	}
}

static void on_idle(struct interpreter *in)
{
	struct context *x = of(in);

	if (!x->began)
		record(x);
	x->began = true;
	answer_waiting(in, NULL);
}

static void on_reseeded(struct interpreter *in, const struct err *e)
{
}

static void on_no_start(struct interpreter *in, const struct err *e)
{
	/* A context whose interpreter could not be started the first time is removed. */
	in->ends = in->ends || !of(in)->began;
	answer_waiting(in, e);
}

static const struct interpreter_ops ops = {
	.on_idle = on_idle,
	.on_reseeded = on_reseeded,
	.on_no_start = on_no_start,
};

/* --- start and end -------------------------------------------------------------------------- */

static struct context *find(const char *id, struct err *e)
{
	list_each_of (x, struct context, node, &contexts)
		if (!x->interpreter.ends && strcmp(x->id, id) == 0)
			return x;
	err_say(e, ENOENT, "there is no context %s", id);
	return NULL;
}

/* Ended contexts do not count: their processes have been killed, and are gone soon. */
static unsigned count_living(void)
{
	unsigned n = 0;

	list_each_of (x, const struct context, node, &contexts)
		n += !x->interpreter.ends;
	return n;
}

static void context_free(struct context *x)
{
	list_each_of (c, struct conn, node, &conn_all)
		if (c->interpreter == &x->interpreter)
			c->interpreter = NULL;
	list_del(&x->node);
	interpreter_fini(&x->interpreter);
	free(x->env);
	free(x);
}

static int check_folder(const char *cwd, struct err *e)
{
	scoped_fd int fd = cwd[0] ? open(cwd, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;

	if (!cwd[0] || fd >= 0)
		return 0;
	return err_say(e, ENOTDIR, "enter the folder %.100s: %s", cwd, strerror(errno));
}

/* Returns 0, or -EINVAL for a name that no variable can have. */
static int check_variables(const struct context_request *r, const struct frame *f, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);
	size_t len;

	w.pos = r->env;
	for (uint32_t i = 0; i < r->env_count; i++) {
		const uint8_t *name = wire_get_str(&w, &len, AGENT_PAYLOAD_MAX);

		if (!len || memchr(name, '=', len))
			return err_say(e, EINVAL, "set the variable \"%.*s\": the name is invalid",
				       (int)(len < 60 ? len : 60), (const char *)name);
		wire_get_str(&w, &len, AGENT_PAYLOAD_MAX);
	}
	return 0;
}

static int check_new(const struct context_request *r, const struct frame *f, struct err *e)
{
	struct err ignored;

	if (find(r->id, &ignored))
		return err_say(e, EEXIST, "a context with this id already exists");
	if (count_living() >= AGENT_CONTEXT_MAX)
		return err_say(e, EAGAIN, "%d contexts exist in this sandbox, which is the limit",
			       AGENT_CONTEXT_MAX);
	return check_variables(r, f, e);
}

static int check_start(const struct context_request *r, const struct frame *f, struct err *e)
{
	int bad = check_new(r, f, e);

	if (!bad)
		bad = driver_find(r->language, e);
	return bad ? bad : check_folder(r->cwd, e);
}

/* Makes a context, whose interpreter interpreter_serve then starts. */
static struct context *context_new(const struct context_request *r, const struct frame *f,
				   struct err *e)
{
	/* From calloc, because most of its pages stay untouched. */
	struct context *x = calloc(1, sizeof(*x));
	const size_t env_len = f->len - r->env;
	uint8_t *env = malloc(env_len + 1);

	if (!x || !env) {
		free(x);
		free(env);
		err_say(e, ENOMEM, "no memory for a context");
		return NULL;
	}
	memcpy(env, f->payload + r->env, env_len);
	x->env = env;
	x->started_ms = realtime_ms();
	memcpy(x->id, r->id, sizeof(x->id));
	memcpy(x->cwd, r->cwd, sizeof(x->cwd));
	snprintf(x->dir, sizeof(x->dir), "%s/%s", parent_dir, x->id);
	x->launch = (struct driver_launch){.cwd = x->cwd,
					   .env = env,
					   .env_len = env_len,
					   .env_count = r->env_count,
					   .dir = x->dir};
	list_add_tail(&contexts, &x->node);
	if (interpreter_init(&x->interpreter, r->language, &x->launch, grace, &ops, e) == 0)
		return x;
	context_free(x);
	return NULL;
}

static int start(struct conn *c, const struct context_request *r, const struct frame *f,
		 struct err *e)
{
	int bad = check_start(r, f, e);

	if (bad)
		return bad;
	struct context *x = context_new(r, f, e);
	if (!x)
		return e->code;
	c->interpreter = &x->interpreter;
	conn_become(c, CONN_CONTEXT);
	interpreter_serve(&x->interpreter);
	return 0;
}

/* Keeps the list in order of age. */
static void place(struct context *x)
{
	struct list *before = &contexts;

	list_del(&x->node);
	list_each_of (each, struct context, node, &contexts) {
		if (each->started_ms <= x->started_ms)
			continue;
		before = &each->node;
		break;
	}
	list_add_tail(before, &x->node);
}

static int restore(const uint8_t *bytes, size_t len, const char *how, struct err *e)
{
	struct wire w = wire_from(bytes, len);
	struct context_request r;
	int64_t started_ms = (int64_t)wire_get_u64(&w);
	const struct frame f = {.type = AGENT_CONTEXT_START,
				.len = (uint32_t)(len - w.pos),
				.payload = bytes + w.pos};
	int bad = w.bad ? -EPROTO : context_request_parse(&f, &r, e);

	if (!bad)
		bad = check_new(&r, &f, e);
	if (bad)
		return bad;
	struct context *x = context_new(&r, &f, e);
	if (!x)
		return e->code;
	x->started_ms = started_ms;
	x->began = true;
	place(x);
	interpreter_note_loss(&x->interpreter, how);
	interpreter_serve(&x->interpreter);
	return 0;
}

/* Any program in the guest may have changed the file. */
static void restore_file(int dir, const char *name, const char *how)
{
	static uint8_t bytes[RECORD_MAX];
	struct err e = {.text = "it is too short"};
	scoped_fd int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

	if (n < 0)
		err_set(&e, errno, "read it");
	if (n < 0 || restore(bytes, (size_t)n, how, &e) < 0)
		log_console("start the context of %s again: %s", name, e.text);
}

void contexts_restore(const char *how)
{
	DIR *dir = opendir(parent_dir);

	if (!dir)
		return;
	for (const struct dirent *d; (d = readdir(dir));) {
		const char *end = strrchr(d->d_name, '.');

		if (end && strcmp(end, RECORD) == 0)
			restore_file(dirfd(dir), d->d_name, how);
	}
	closedir(dir);
}

static void end(struct conn *c, struct context *x)
{
	const struct err gone = {.code = -ENOENT, .text = "the context was deleted"};

	forget(x);
	answer_waiting(&x->interpreter, &gone);
	interpreter_end(&x->interpreter, &gone);
	conn_done(c);
}

static void restart(struct conn *c, struct context *x)
{
	c->interpreter = &x->interpreter;
	conn_become(c, CONN_CONTEXT);
	interpreter_restart(&x->interpreter);
}

/* --- requests ------------------------------------------------------------------------------- */

static void list_all(struct conn *c)
{
	list_each_of (x, const struct context, node, &contexts) {
		const struct interpreter *in = &x->interpreter;
		uint8_t payload[AGENT_ID_LEN + AGENT_PATH_MAX + 32];
		struct wire w = wire_on(payload, sizeof(payload));

		if (in->ends || !x->began)
			continue;
		wire_put_str(&w, x->id, strlen(x->id));
		wire_put_u8(&w, (uint8_t)in->driver.language);
		wire_put_u8(&w, call_is_active(in) || !list_empty(&in->queue));
		wire_put_u64(&w, (uint64_t)x->started_ms);
		wire_put_str(&w, x->cwd, strlen(x->cwd));
		conn_send(c, AGENT_CONTEXT, payload, w.pos);
	}
	conn_done(c);
}

static int handle_one(struct conn *c, struct context *x, const struct context_request *r,
		      struct err *e)
{
	if (r->type == AGENT_IN_CONTEXT)
		return interpreter_handle(&x->interpreter, c, &r->inner, e);
	if (r->type == AGENT_CONTEXT_END)
		end(c, x);
	else
		restart(c, x);
	return 0;
}

/* Answers with an error. The code of a refused call is not read, so its connection is closed. */
static void refuse(struct conn *c, const struct context_request *r, const struct err *e)
{
	if (r->inner.type == AGENT_EXEC)
		conn_refuse_unread(c, e);
	else
		conn_refuse(c, e);
}

int contexts_handle(struct conn *c, const struct frame *f, struct err *e)
{
	struct context_request r;
	struct err refused;
	int bad = context_request_parse(f, &r, e);

	if (bad)
		return bad;
	if (r.type == AGENT_CONTEXT_LIST) {
		list_all(c);
		return 0;
	}
	if (r.type == AGENT_CONTEXT_START) {
		if (start(c, &r, f, &refused) < 0)
			refuse(c, &r, &refused);
		return 0;
	}
	struct context *x = find(r.id, &refused);
	if (x)
		return handle_one(c, x, &r, e);
	refuse(c, &r, &refused);
	return 0;
}

/* --- between events ------------------------------------------------------------------------- */

void contexts_reseed(bool user_generators)
{
	list_each_of_safe (x, struct context, node, &contexts) {
		interpreter_reseed(&x->interpreter, user_generators);
		interpreter_serve(&x->interpreter);
	}
}

int contexts_timeout_ms(void)
{
	int timeout = -1;

	list_each_of (x, const struct context, node, &contexts)
		timeout = loop_sooner(timeout, call_timeout_ms(&x->interpreter));
	return timeout;
}

void contexts_on_time(void)
{
	list_each_of_safe (x, struct context, node, &contexts) {
		if (interpreter_is_gone(&x->interpreter))
			context_free(x);
		else
			call_on_time(&x->interpreter);
	}
}
