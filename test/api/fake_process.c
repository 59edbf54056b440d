// SPDX-License-Identifier: Apache-2.0
/*
 * Processes. What a process was started with is its first output, on stdout. Programs with these
 * names behave otherwise: "missing" cannot be started, "bytes" prints parts of characters, "kill"
 * dies by a signal, "late" exceeds its time limit, "fail" loses its guest after it started.
 */
#include <inttypes.h>

#include "base/fd.h"
#include "orchestrator/io/loop.h"
#include "test/api/fake_call.h"

#define PARTS_MAX 64

struct part {
	unsigned stream;
	size_t len;
};

struct fake_process {
	struct list link;
	char id[CORE_ID_LEN + 1], label[512], user[65];
	bool tty, stdin_open, ended, fails;
	struct process_exit exit;
	struct part parts[PARTS_MAX];
	size_t n_parts;
	uint8_t *out;
	size_t len;
};

static struct fake_process *find(struct core *c, const char *id)
{
	list_each (pos, &c->processes) {
		struct fake_process *p = container_of(pos, struct fake_process, link);

		if (strcmp(p->id, id) == 0)
			return p;
	}
	return NULL;
}

void fake_processes_free(struct core *c)
{
	while (!list_empty(&c->processes)) {
		struct fake_process *p = container_of(c->processes.next, struct fake_process, link);

		list_del(&p->link);
		free(p->out);
		free(p);
	}
}

static void wake(struct core *c, struct fake_process *p)
{
	list_each (pos, &c->calls) {
		struct core_call *call = container_of(pos, struct core_call, link);

		if (call->process == p && !call->paused)
			loop_timer_set(c->loop, &call->step, 0);
	}
}

static void print(struct core *c, struct fake_process *p, unsigned stream, const void *data,
		  size_t len)
{
	if (!len || p->n_parts == PARTS_MAX)
		return;
	p->out = realloc(p->out, p->len + len);
	memcpy(p->out + p->len, data, len);
	p->len += len;
	p->parts[p->n_parts++] = (struct part){stream, len};
	wake(c, p);
}

static void end(struct core *c, struct fake_process *p, int code, uint8_t signal)
{
	if (!p->ended)
		p->exit = (struct process_exit){.code = code,
						.signal = signal,
						.timed_out = p->exit.timed_out,
						.ended_ms = 1700000001000};
	p->ended = true;
	p->stdin_open = false;
	p->exit.total = p->len;
	wake(c, p);
}

static void add_list(char *text, size_t size, const char *const *list)
{
	for (; list && *list; list++)
		snprintf(text + strlen(text), size - strlen(text), "[%s]", *list);
}

static void behave(struct core *c, struct fake_process *p, const struct process_spec *spec)
{
	static const struct part chunks[] = {{1, 2}, {1, 1}, {2, 1}, {1, 1}, {1, 1}, {1, 3}};
	static const char bytes[] = "a\xc3\xa9\xc3\xe2\x82\xac\xff\xc3";
	const char *program = spec->argv[0];
	char text[4096] = "";

	if (strcmp(program, "bytes") == 0) {
		for (size_t i = 0, at = 0; i < ARRAY_LEN(chunks); at += chunks[i++].len)
			print(c, p, chunks[i].stream, bytes + at, chunks[i].len);
		end(c, p, 0, 0);
	} else if (strcmp(program, "kill") == 0) {
		end(c, p, 137, 9);
	} else if (strcmp(program, "late") == 0) {
		p->exit.timed_out = true;
		end(c, p, 143, 15);
	} else {
		add_list(text, sizeof(text), spec->argv);
		add_list(text, sizeof(text), spec->env);
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s %s %u %ux%u",
			 spec->cwd ? spec->cwd : "-", spec->user ? spec->user : "-",
			 spec->timeout_ms, spec->cols, spec->rows);
		print(c, p, 1, text, strlen(text));
		p->fails = strcmp(program, "fail") == 0;
	}
}

static struct fake_process *start(struct core_call *call, const struct process_spec *spec)
{
	struct core *c = call->core;

	if (!call->failing && strcmp(spec->argv[0], "missing") == 0)
		fail(call, FAIL_PROCESS_FAILED, "there is no user \"x\" in the sandbox");
	if (call->failing)
		return NULL;
	struct fake_process *p = calloc(1, sizeof(*p));
	snprintf(p->id, sizeof(p->id), "%s_%032" PRIx64, spec->tty ? "pty" : "prc", ++c->next_id);
	snprintf(p->label, sizeof(p->label), "%s", spec->label);
	snprintf(p->user, sizeof(p->user), "%s", spec->user ? spec->user : "");
	p->tty = spec->tty;
	p->stdin_open = spec->stdin_pipe;
	list_add_tail(&c->processes, &p->link);
	behave(c, p, spec);
	return p;
}

static struct process_view view_of(const struct fake_process *p)
{
	struct process_view view = {.label = p->label,
				    .label_len = strlen(p->label),
				    .user = p->user,
				    .user_len = strlen(p->user),
				    .pid = 77,
				    .started_ms = 1700000000123,
				    .total = p->len,
				    .tty = p->tty,
				    .stdin_open = p->stdin_open,
				    .ended = p->ended,
				    .exit = p->exit};

	memcpy(view.id, p->id, sizeof(view.id));
	return view;
}

/* --- streams --- */

static void stream_run(struct core_call *call)
{
	struct fake_process *p = call->process;
	uint64_t place = 0;

	if (!call->started) {
		const struct process_view view = view_of(p);

		call->started = true;
		call->process_sink.started(call->arg, &view);
	}
	for (size_t i = 0; i < p->n_parts; place += p->parts[i++].len) {
		if (place + p->parts[i].len <= call->sent)
			continue;
		uint64_t from = place > call->sent ? place : call->sent;

		call->sent = place + p->parts[i].len;
		loop_timer_set(call->core->loop, &call->step, 0);
		call->process_sink.bytes(call->arg, p->parts[i].stream, from, p->out + from,
					 call->sent - from);
		return;
	}
	if (p->fails) {
		fail(call, FAIL_VM_DIED, "its VM died");
		call->process_sink.failed(call->arg, &call->failure);
		call_free(call);
	} else if (p->ended) {
		call->process_sink.exited(call->arg, &p->exit);
		call_free(call);
	}
}

static void stream_failed(struct core_call *call)
{
	call->process_sink.failed(call->arg, &call->failure);
}

static struct core_call *process_call(struct core *c, const char *id, const char *process,
				      void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->process = find(c, process);
	if (!call->failing && !call->process)
		fail(call, FAIL_NO_SUCH_PROCESS, "there is no such process");
	return call;
}

static struct core_call *stream(struct core_call *call, const struct process_sink *sink)
{
	call->process_sink = *sink;
	call->run = stream_run;
	call->on_failed = stream_failed;
	return call;
}

struct core_call *core_process_run(struct core *c, const char *tenant, const char *id,
				   const struct process_spec *spec, const struct process_sink *sink,
				   void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->process = start(call, spec);
	return stream(call, sink);
}

struct core_call *core_process_attach(struct core *c, const char *tenant, const char *id,
				      const char *process, uint64_t place,
				      const struct process_sink *sink, void *arg)
{
	struct core_call *call = process_call(c, id, process, arg);

	call->sent = place;
	if (!call->failing && place > call->process->len)
		fail(call, FAIL_OUT_OF_RANGE, "the process wrote fewer bytes");
	return stream(call, sink);
}

/* --- descriptions --- */

static void list_failed(struct core_call *call)
{
	call->process_list.ended(call->arg, &call->failure);
}

static void list_run(struct core_call *call)
{
	list_each (pos, &call->core->processes) {
		struct fake_process *p = container_of(pos, struct fake_process, link);
		const struct process_view view = view_of(p);

		if (!call->process || call->process == p)
			call->process_list.process(call->arg, &view);
	}
	call->process_list.ended(call->arg, NULL);
	call_free(call);
}

static struct core_call *describe(struct core_call *call, const struct process_list_sink *sink)
{
	call->process_list = *sink;
	call->run = list_run;
	call->on_failed = list_failed;
	return call;
}

struct core_call *core_process_start(struct core *c, const char *tenant, const char *id,
				     const struct process_spec *spec,
				     const struct process_list_sink *sink, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->process = start(call, spec);
	return describe(call, sink);
}

struct core_call *core_process_list(struct core *c, const char *tenant, const char *id,
				    const struct process_list_sink *sink, void *arg)
{
	return describe(call_on(c, OP, id, arg), sink);
}

struct core_call *core_process_stat(struct core *c, const char *tenant, const char *id,
				    const char *process, const struct process_list_sink *sink,
				    void *arg)
{
	return describe(process_call(c, id, process, arg), sink);
}

/* --- input and others --- */

static void done_failed(struct core_call *call)
{
	call->done(call->arg, &call->failure);
}

static void done_run(struct core_call *call)
{
	call->process = NULL;
	call->done(call->arg, NULL);
	call_free(call);
}

static struct core_call *done_call(struct core *c, const char *id, const char *process,
				   core_done_fn *fn, void *arg)
{
	struct core_call *call = process_call(c, id, process, arg);

	call->done = fn;
	call->run = done_run;
	call->on_failed = done_failed;
	return call;
}

/* Input is printed on stderr. */
struct core_call *core_process_input(struct core *c, const char *tenant, const char *id,
				     const char *process, const void *data, size_t len,
				     core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, process, fn, arg);

	if (call->failing)
		return call;
	if (!call->process->stdin_open)
		fail(call, FAIL_STDIN_CLOSED, "its stdin is closed");
	else
		print(c, call->process, 2, data, len);
	return call;
}

struct core_call *core_process_close_stdin(struct core *c, const char *tenant, const char *id,
					   const char *process, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, process, fn, arg);

	if (!call->failing && call->process->stdin_open)
		end(c, call->process, 0, 0);
	return call;
}

struct core_call *core_process_signal(struct core *c, const char *tenant, const char *id,
				      const char *process, uint8_t number, core_done_fn *fn,
				      void *arg)
{
	struct core_call *call = done_call(c, id, process, fn, arg);

	if (!call->failing && call->process->ended)
		fail(call, FAIL_PROCESS_ENDED, "the program has ended");
	else if (!call->failing)
		end(c, call->process, 128 + number, number);
	return call;
}

struct core_call *core_process_kill(struct core *c, const char *tenant, const char *id,
				    const char *process, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, process, fn, arg);

	if (!call->failing)
		end(c, call->process, 137, 9);
	return call;
}
