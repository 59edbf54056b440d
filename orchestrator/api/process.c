// SPDX-License-Identifier: Apache-2.0
/* Processes of a sandbox. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/num.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/api/process.h"
#include "orchestrator/exec/splitter.h"
#include "orchestrator/guestops/guestops.h"
#include "orchestrator/json/json.h"

#define SIGNAL_MAX 64

/* --- commands of processes and terminals ---------------------------------------------------- */

bool command_is_good(struct request *r, const char *field, const char *command, char *const *argv)
{
	if (!command == !argv)
		answer_error(r, 400, "bad_request", "exactly one of %s and argv must be given%s",
			     field, argv ? ", not both" : "");
	else if (argv && (!argv[0] || !argv[0][0]))
		answer_error(
			r, 400, "bad_request",
			"argv must begin with the name of a program, not with an empty string");
	else
		return true;
	return false;
}

void command_label(char out[static COMMAND_LABEL_MAX + 1], const char *command, char *const *argv)
{
	const char *shell[] = {command, NULL};
	const char *const *part = command ? shell : (const char *const *)argv;
	size_t len = 0;

	for (const char *gap = ""; *part && len < COMMAND_LABEL_MAX; part++, gap = " ")
		len += (size_t)snprintf(out + len, COMMAND_LABEL_MAX + 1 - len, "%s%s", gap, *part);
	if (len <= COMMAND_LABEL_MAX)
		return;
	len = COMMAND_LABEL_MAX;
	while (len && !utf8_valid(out, len))
		len--;
	out[len] = '\0';
}

/* --- descriptions --------------------------------------------------------------------------- */

/* Adds "SIGTERM", or "SIG34" for a signal without a name. */
static void add_signal(struct text *t, uint8_t number)
{
	const char *name = sigabbrev_np(number);

	if (name)
		text_printf(t, "\"SIG%s\"", name);
	else
		text_printf(t, "\"SIG%u\"", number);
}

static void add_end(struct text *t, const struct process_exit *x)
{
	json_member(t, "state", "ended");
	json_member_time(t, "ended_at", x->ended_ms);
	text_printf(t, ",\"exit_code\":%d,\"signal\":", x->code);
	if (x->signal)
		add_signal(t, x->signal);
	else
		text_puts(t, "null");
	json_member_bool(t, "timed_out", x->timed_out);
}

static void add_process(struct text *t, const struct process_view *p)
{
	text_printf(t, "{\"id\":\"%s\",\"pid\":%u,\"command\":", p->id, p->pid);
	json_string(t, p->label, p->label_len);
	text_puts(t, ",\"user\":");
	if (p->user_len)
		json_string(t, p->user, p->user_len);
	else
		text_puts(t, "null");
	json_member_bool(t, "tty", p->tty);
	json_member_bool(t, "stdin", p->stdin_open || (p->tty && !p->ended));
	json_member_time(t, "started_at", p->started_ms);
	if (p->ended)
		add_end(t, &p->exit);
	else
		text_puts(t, ",\"state\":\"running\",\"ended_at\":null,\"exit_code\":null,"
			     "\"signal\":null,\"timed_out\":false");
	json_member_number(t, "output_bytes", p->total);
	text_putc(t, '}');
}

static void on_listed(void *arg, const struct process_view *p)
{
	struct request *r = arg;

	text_putc(&r->out, r->out.len ? ',' : '[');
	add_process(&r->out, p);
}

static const struct process_list_sink list_sink = {.process = on_listed, .ended = request_listed};

void serve_processes(struct request *r)
{
	if (!answer_may_be_long(r))
		return;
	request_ref(r);
	r->op = service_process_list(r->service, r->tenant, r->id, NULL, &list_sink, r);
}

static void on_described(void *arg, const struct process_view *p)
{
	struct request *r = arg;

	add_process(&r->out, p);
	text_putc(&r->out, '\n');
}

static const struct process_list_sink describe_sink = {.process = on_described,
						       .ended = request_done_200};

void serve_process(struct request *r)
{
	request_ref(r);
	r->op = service_process_list(r->service, r->tenant, r->id, r->other, &describe_sink, r);
}

/* --- the stream ----------------------------------------------------------------------------- */

static void end_line(struct text *t)
{
	text_puts(t, ",\"ts\":");
	text_number(t, realtime_ms());
	text_puts(t, "}\n");
}

static void on_started(void *arg, const struct process_view *p)
{
	struct request *r = arg;

	text_printf(&r->out, "{\"type\":\"started\",\"id\":\"%s\",\"pid\":%u", p->id, p->pid);
	end_line(&r->out);
	r->streaming = true;
	stream_touch(r);
}

static void add_output(struct text *t, unsigned stream, uint64_t place, const void *data,
		       size_t len)
{
	text_puts(t, stream == 2 ? "{\"type\":\"stderr\",\"data\":"
				 : "{\"type\":\"stdout\",\"data\":");
	if (!json_string(t, data, len)) {
		text_puts(t, ",\"data_b64\":");
		json_base64(t, data, len);
	}
	text_puts(t, ",\"seq\":");
	text_number(t, (int64_t)place);
	end_line(t);
}

/* The first bytes of a character whose rest the process has not printed yet: the request's `state`,
 * once there is output. */
struct output_tail {
	uint8_t bytes[4], len, stream;
	uint64_t place; /* offset of its first byte in the process's output */
};

static struct output_tail *tail_of(struct request *r)
{
	if (!r->state)
		r->state = must_alloc(sizeof(struct output_tail));
	return r->state;
}

static void flush_tail(struct request *r)
{
	struct output_tail *tail = tail_of(r);

	if (tail->len)
		add_output(&r->out, tail->stream, tail->place, tail->bytes, tail->len);
	tail->len = 0;
}

/* Completes the UTF-8 character whose first bytes are in the tail. Returns how many bytes of `data`
 * it took. */
static size_t complete_tail(struct request *r, const uint8_t *data, size_t len)
{
	struct output_tail *tail = tail_of(r);
	size_t used = 0;
	bool open = tail->len;

	while (open && used < len && (data[used] & 0xc0) == 0x80) {
		tail->bytes[tail->len++] = data[used++];
		open = utf8_cut(tail->bytes, tail->len) == tail->len;
	}
	/* Another byte does not continue the character. */
	if (!open || used < len)
		flush_tail(r);
	return used;
}

/* Adds events with the bytes, but holds the beginning of a character at their end: no event ends
 * within a character that may still become complete. */
static void on_output(void *arg, unsigned stream, uint64_t place, const void *data, size_t len)
{
	struct request *r = arg;
	struct output_tail *tail = tail_of(r);
	const uint8_t *at = data;

	if (tail->len && (tail->stream != stream || tail->place + tail->len != place))
		flush_tail(r);
	size_t used = complete_tail(r, at, len);
	size_t keep = utf8_cut(at + used, len - used), out = len - used - keep;
	if (out)
		add_output(&r->out, stream, place + used, at + used, out);
	if (keep) {
		*tail = (struct output_tail){.len = (uint8_t)keep,
					     .stream = (uint8_t)stream,
					     .place = place + used + out};
		memcpy(tail->bytes, at + used + out, keep);
	}
	stream_touch(r);
	stream_hold(r);
}

static void on_exited(void *arg, const struct process_exit *x)
{
	struct request *r = arg;

	if (!request_called(r))
		return;
	flush_tail(r);
	text_printf(&r->out, "{\"type\":\"exit\",\"data\":%d", x->code);
	if (x->signal) {
		text_puts(&r->out, ",\"signal\":");
		add_signal(&r->out, x->signal);
	}
	if (x->timed_out)
		text_puts(&r->out, ",\"timed_out\":true");
	text_puts(&r->out, ",\"seq\":");
	text_number(&r->out, (int64_t)x->total);
	end_line(&r->out);
	stream_end(r, false);
}

static void on_failed(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (!stream_called_late(r, f))
		return;
	flush_tail(r);
	text_failed(&r->out, "error", "data", f);
	end_line(&r->out);
	stream_end(r, true);
}

static const struct process_sink stream_sink = {
	.started = on_started, .bytes = on_output, .exited = on_exited, .failed = on_failed};

void serve_process_output(struct request *r)
{
	uint64_t since = 0;

	if (!ask_number(r, "since", 0, &since) || !ask_flag(r, "hangup", &r->hangup) ||
	    stream_is_head(r))
		return;
	request_ref(r);
	r->op = service_process_attach(r->service, r->tenant, r->id, r->other, since, &stream_sink,
				       r);
}

/* --- start ---------------------------------------------------------------------------------- */

/* Reads the size of the terminal, if one is wanted. Returns false, with an answer given, when it is
 * invalid. */
static bool read_tty(struct request *r, const struct process_start_body *b,
		     struct process_spec *spec)
{
	struct tty_body tty;
	struct err e;

	if (!b->tty.p)
		return true;
	memcpy(&tty, tty_json.initial, sizeof(tty));
	if (json_read(b->tty.p, b->tty.len, tty_json.fields, tty_json.n_fields, &tty, &e) < 0)
		return bad_request(r, "tty.%s", e.text);
	spec->tty = true;
	spec->cols = tty.cols;
	spec->rows = tty.rows;
	return true;
}

static const struct process_list_sink detached_sink = {.process = on_described,
						       .ended = request_done_201};

static void on_run_started(void *arg, const struct process_view *p)
{
	struct request *r = arg;

	memcpy(r->other, p->id, sizeof(r->other));
	r->made_program = true;
	on_started(r, p);
}

static const struct process_sink run_sink = {
	.started = on_run_started, .bytes = on_output, .exited = on_exited, .failed = on_failed};

void serve_process_start(struct request *r, const struct process_start_body *b)
{
	const char *const shell[] = {"/bin/bash", "-c", b->command.p, NULL};
	char label[COMMAND_LABEL_MAX + 1] = "";
	struct process_spec spec = {
		.argv = b->command.p ? shell : (const char *const *)b->argv,
		.label = label,
		.cwd = b->cwd.len ? b->cwd.p : NULL,
		.user = b->user.len ? b->user.p : NULL,
		.env = (const char *const *)b->env,
		.stdin_pipe = b->stdin,
		.timeout_ms = b->timeout_ms,
	};

	if (!command_is_good(r, "command", b->command.p, b->argv) || !read_tty(r, b, &spec))
		return;
	if (b->detach && b->hangup) {
		answer_error(r, 400, "bad_request",
			     "detach and hangup cannot be combined: hangup ends a process when its "
			     "client leaves, and a detached process has no client");
		return;
	}
	r->hangup = b->hangup;
	command_label(label, b->command.p, b->argv);
	request_ref(r);
	if (b->detach)
		r->op = service_process_start(r->service, r->tenant, r->id, &spec, &detached_sink,
					      r);
	else
		r->op = service_process_run(r->service, r->tenant, r->id, &spec, &run_sink, r);
}

/* --- input, signal, kill -------------------------------------------------------------------- */

void serve_process_input(struct request *r)
{
	request_ref(r);
	r->op = service_process_input(r->service, r->tenant, r->id, r->other, r->req->entity.base,
				      r->req->entity.len, request_done, r);
}

void process_do(struct request *r, struct agent_process_request request, service_done_fn *fn)
{
	request.id = r->other;
	request_ref(r);
	r->op = service_process_do(r->service, r->tenant, r->id, &request, fn, r);
}

void serve_process_close(struct request *r)
{
	process_do(r, (struct agent_process_request){.type = AGENT_PROC_CLOSE}, request_done);
}

/* Returns the number of a signal like "TERM", "SIGTERM", "15" or "SIG34"; 0 for another text. */
static uint8_t signal_number(const char *text)
{
	if (strncasecmp(text, "SIG", 3) == 0)
		text += 3;
	if (*text >= '0' && *text <= '9') {
		char *end;
		unsigned long n = strtoul(text, &end, 10);

		return !*end && n <= SIGNAL_MAX ? (uint8_t)n : 0;
	}
	for (uint8_t i = 1; i <= SIGNAL_MAX; i++)
		if (sigabbrev_np(i) && strcasecmp(text, sigabbrev_np(i)) == 0)
			return i;
	return 0;
}

void serve_process_signal(struct request *r, const struct signal_body *b)
{
	uint8_t number = signal_number(b->signal.p);

	if (!number) {
		answer_error(r, 400, "bad_request",
			     "signal must be a name like \"TERM\" or a number from 1 to %d, not "
			     "\"%s\"",
			     SIGNAL_MAX, b->signal.p);
		return;
	}
	process_do(r, (struct agent_process_request){.type = AGENT_PROC_SIGNAL, .signal = number},
		   request_done);
}

void serve_process_kill(struct request *r)
{
	process_do(r, (struct agent_process_request){.type = AGENT_PROC_KILL}, request_done);
}
