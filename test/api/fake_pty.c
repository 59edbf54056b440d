// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdlib.h>

#include "orchestrator/guestops/guestops.h"
#include "orchestrator/io/loop.h"
#include "test/api/fake_call.h"

struct fake_pty {
	struct list link;
	char id[CORE_ID_LEN + 1], label[512];
	uint8_t *out;
	size_t len;
	bool ended;
	int exit_code;
};

static struct fake_pty *find(struct core *c, const char *id)
{
	list_each (pos, &c->ptys) {
		struct fake_pty *p = container_of(pos, struct fake_pty, link);

		if (strcmp(p->id, id) == 0)
			return p;
	}
	return NULL;
}

void fake_ptys_free(struct core *c)
{
	while (!list_empty(&c->ptys)) {
		struct fake_pty *p = container_of(c->ptys.next, struct fake_pty, link);

		list_del(&p->link);
		free(p->out);
		free(p);
	}
}

/* Wakes the calls that wait for the terminal. */
static void wake(struct core *c, struct fake_pty *p)
{
	list_each (pos, &c->calls) {
		struct core_call *call = container_of(pos, struct core_call, link);

		if (call->pty == p && !call->paused)
			loop_timer_set(c->loop, &call->step, 0);
	}
}

static void put_out(struct core *c, struct fake_pty *p, const void *data, size_t len)
{
	p->out = realloc(p->out, p->len + len + 1);
	memcpy(p->out + p->len, data, len);
	p->len += len;
	wake(c, p);
}

static void say(struct core *c, struct fake_pty *p, const char *text)
{
	put_out(c, p, text, strlen(text));
}

static void end(struct core *c, struct fake_pty *p, int code)
{
	if (!p->ended)
		p->exit_code = code;
	p->ended = true;
	wake(c, p);
}

/* --- start --- */

static void id_failed(struct core_call *call)
{
	call->id_fn(call->arg, NULL, &call->failure);
}

static void id_run(struct core_call *call)
{
	call->id_fn(call->arg, call->path, NULL);
	call_free(call);
}

static void say_list(struct core *c, struct fake_pty *p, const char *const *list)
{
	for (; list && *list; list++) {
		say(c, p, "[");
		say(c, p, *list);
		say(c, p, "]");
	}
}

struct core_call *core_pty_start(struct core *c, const char *tenant, const char *id,
				 const struct pty_spec *spec, core_id_fn *fn, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);
	char text[64];

	call->id_fn = fn;
	call->run = id_run;
	call->on_failed = id_failed;
	if (!call->failing && strcmp(spec->argv[0], "missing") == 0)
		fail(call, FAIL_PTY_FAILED, "missing: No such file or directory");
	if (call->failing)
		return call;
	struct fake_pty *p = calloc(1, sizeof(*p));
	snprintf(p->id, sizeof(p->id), "pty_%032" PRIx64, ++c->next_id);
	snprintf(p->label, sizeof(p->label), "%s", spec->label);
	snprintf(text, sizeof(text), " %ux%u ", spec->cols, spec->rows);
	list_add_tail(&c->ptys, &p->link);
	say_list(c, p, spec->argv);
	say(c, p, text);
	say_list(c, p, spec->env);
	say(c, p, spec->cwd ? spec->cwd : "");
	strcpy(call->path, p->id);
	return call;
}

/* --- attach and read --- */

static void attach_run(struct core_call *call)
{
	struct fake_pty *p = call->pty;
	size_t part = p->len > call->sent ? p->len - call->sent : 0;

	if (!call->started) {
		call->started = true;
		call->core->stats.listeners++;
		if (call->listener.found)
			call->listener.found(call->arg);
	}
	part = part < 65536 ? part : 65536;
	if (part) {
		uint64_t offset = call->sent;

		call->sent += part;
		loop_timer_set(call->core->loop, &call->step, 0);
		call->listener.bytes(call->arg, offset, p->out + offset, part);
	} else if (p->ended) {
		call->core->stats.listeners--;
		call->listener.exited(call->arg, p->exit_code);
		call_free(call);
	}
}

static void attach_failed(struct core_call *call)
{
	call->listener.failed(call->arg, &call->failure);
}

static struct core_call *pty_call(struct core *c, const char *id, const char *pty, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->pty = find(c, pty);
	if (!call->failing && !call->pty)
		fail(call, FAIL_NO_SUCH_PTY, "there is no such terminal");
	return call;
}

struct core_call *core_pty_attach(struct core *c, const char *tenant, const char *id,
				  const char *pty, uint64_t offset, const struct pty_sink *sink,
				  void *arg)
{
	struct core_call *call = pty_call(c, id, pty, arg);

	call->listener = *sink;
	call->sent = offset;
	call->run = attach_run;
	call->on_failed = attach_failed;
	return call;
}

static void read_answer(struct core_call *call)
{
	struct fake_pty *p = call->pty;
	size_t len = p->len > call->sent ? p->len - call->sent : 0;

	len = len < call->max ? len : call->max;
	const struct pty_output out = {.data = p->out + call->sent,
				       .len = len,
				       .next = call->sent + len,
				       .exited = p->ended && call->sent + len == p->len,
				       .exit_code = p->exit_code};
	call->read_fn(call->arg, &out, NULL);
	call_free(call);
}

/* The first step waits when there is no output yet. */
static void read_run(struct core_call *call)
{
	struct fake_pty *p = call->pty;

	if (!call->started && p->len <= call->sent && !p->ended) {
		call->started = true;
		loop_timer_set(call->core->loop, &call->step, call->size);
	} else {
		read_answer(call);
	}
}

static void read_failed(struct core_call *call)
{
	call->read_fn(call->arg, NULL, &call->failure);
}

struct core_call *core_pty_read(struct core *c, const char *tenant, const char *id, const char *pty,
				const struct pty_read *read, core_pty_read_fn *fn, void *arg)
{
	struct core_call *call = pty_call(c, id, pty, arg);

	call->read_fn = fn;
	call->sent = read->place;
	call->max = read->max_bytes;
	call->size = read->timeout_ms;
	call->run = read_run;
	call->on_failed = read_failed;
	return call;
}

/* --- input and others --- */

static void done_failed(struct core_call *call)
{
	call->done(call->arg, &call->failure);
}

static void done_run(struct core_call *call)
{
	call->pty = NULL;
	call->done(call->arg, NULL);
	call_free(call);
}

static struct core_call *done_call(struct core *c, const char *id, const char *pty,
				   core_done_fn *fn, void *arg)
{
	struct core_call *call = pty_call(c, id, pty, arg);

	call->done = fn;
	call->run = done_run;
	call->on_failed = done_failed;
	return call;
}

struct core_call *core_pty_input(struct core *c, const char *tenant, const char *id,
				 const char *pty, const void *data, size_t len, core_done_fn *fn,
				 void *arg)
{
	struct core_call *call = done_call(c, id, pty, fn, arg);
	struct fake_pty *p = call->pty;
	char line[64] = "";
	size_t n;

	if (call->failing)
		return call;
	if (p->ended) {
		fail(call, FAIL_PTY_ENDED, "the program has ended");
		return call;
	}
	put_out(c, p, data, len);
	memcpy(line, data, len < sizeof(line) - 1 ? len : sizeof(line) - 1);
	if (sscanf(line, "exit %zu", &n) == 1)
		end(c, p, (int)n);
	if (sscanf(line, "flood %zu", &n) == 1) {
		char *text = malloc(n);

		memset(text, 'x', n);
		put_out(c, p, text, n);
		free(text);
	}
	return call;
}

struct core_call *core_pty_resize(struct core *c, const char *tenant, const char *id,
				  const char *pty, uint32_t cols, uint32_t rows, core_done_fn *fn,
				  void *arg)
{
	struct core_call *call = done_call(c, id, pty, fn, arg);
	char text[64];

	snprintf(text, sizeof(text), "%ux%u", cols, rows);
	if (!call->failing)
		say(c, call->pty, text);
	return call;
}

struct core_call *core_pty_kill(struct core *c, const char *tenant, const char *id, const char *pty,
				core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, pty, fn, arg);

	if (!call->failing)
		end(c, call->pty, 137);
	return call;
}

/* --- list --- */

static void list_failed(struct core_call *call)
{
	call->ptys.ended(call->arg, &call->failure);
}

static void list_run(struct core_call *call)
{
	list_each (pos, &call->core->ptys) {
		const struct fake_pty *p = container_of(pos, struct fake_pty, link);
		struct pty_view view = {.label = p->label,
					.label_len = strlen(p->label),
					.started_at_ms = 1700000000123,
					.ended = p->ended,
					.exit_code = p->exit_code};

		memcpy(view.id, p->id, sizeof(view.id));
		call->ptys.pty(call->arg, &view);
	}
	call->ptys.ended(call->arg, NULL);
	call_free(call);
}

struct core_call *core_pty_list(struct core *c, const char *tenant, const char *id,
				const struct pty_list_sink *sink, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->ptys = *sink;
	call->run = list_run;
	call->on_failed = list_failed;
	return call;
}
