// SPDX-License-Identifier: Apache-2.0
/* Terminals: processes with a tty, in the form and with the error codes that the published client
 * expects. */
#include <string.h>

#include "base/fd.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/api/process.h"
#include "orchestrator/guestops/guestops.h"

/* Returns a copy of the failure in `copy`, with the code that it has for terminals; NULL: none. */
static const struct failure *of_pty(const struct failure *f, struct failure *copy)
{
	static const enum failure_code codes[][2] = {
		{FAIL_NO_SUCH_PROCESS, FAIL_NO_SUCH_PTY},
		{FAIL_PROCESS_FAILED, FAIL_PTY_FAILED},
		{FAIL_STDIN_CLOSED, FAIL_PTY_ENDED},
		{FAIL_STDIN_FULL, FAIL_PTY_FULL},
	};

	if (!f)
		return NULL;
	*copy = *f;
	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (f->code == codes[i][0])
			copy->code = codes[i][1];
	return copy;
}

/* --- the stream ----------------------------------------------------------------------------- */

static void add_failure(struct text *t, const struct failure *f)
{
	text_failed(t, "pty_error", "message", f);
	text_puts(t, "}\n");
}

/* Sends the head of the answer at once. After a start, pty_ready has begun it. */
static void on_found(void *arg, const struct process_view *p)
{
	struct request *r = arg;

	if (!r->streaming)
		text_putc(&r->out, '\n');
	r->streaming = true;
	stream_touch(r);
}

static void on_output(void *arg, unsigned stream, uint64_t place, const void *data, size_t len)
{
	struct request *r = arg;

	text_puts(&r->out, "{\"type\":\"pty_data\",\"data_b64\":");
	json_base64(&r->out, data, len);
	text_printf(&r->out, ",\"seq\":%llu}\n", (unsigned long long)place);
	stream_touch(r);
	stream_hold(r);
}

static void on_exited(void *arg, const struct process_exit *x)
{
	struct request *r = arg;

	if (!request_called(r))
		return;
	text_printf(&r->out, "{\"type\":\"pty_exit\",\"data\":%d}\n", x->code);
	stream_end(r, false);
}

static void on_failed(void *arg, const struct failure *failure)
{
	struct request *r = arg;
	struct failure copy;
	const struct failure *f = of_pty(failure, &copy);

	/* The terminal exists: clients expect the stream, which then says that it fails. */
	if (f->code == FAIL_OUT_OF_RANGE)
		text_putc(&r->out, '\n');
	if (!stream_called_late(r, f))
		return;
	add_failure(&r->out, f);
	stream_end(r, true);
}

static const struct process_sink attach_sink = {
	.started = on_found, .bytes = on_output, .exited = on_exited, .failed = on_failed};

static void attach(struct request *r, uint64_t place)
{
	request_ref(r);
	r->op = service_process_attach(r->service, r->tenant, r->id, r->other, place, &attach_sink,
				       r);
}

void serve_pty_attach(struct request *r)
{
	uint64_t place = 0;

	if (ask_number(r, "since_seq", 0, &place) && !stream_is_head(r))
		attach(r, place);
}

/* --- start ---------------------------------------------------------------------------------- */

static void on_started(void *arg, const struct process_view *p)
{
	struct request *r = arg;

	memcpy(r->other, p->id, sizeof(r->other));
}

static void on_start_end(void *arg, const struct failure *failure)
{
	struct request *r = arg;
	struct failure copy;
	const struct failure *f = of_pty(failure, &copy);

	if (!request_called(r))
		return;
	if (f && f->code == FAIL_PTY_FAILED) {
		add_failure(&r->out, f);
		stream_end(r, false);
	} else if (f) {
		answer_failure(r, f);
	} else {
		r->made_program = true;
		text_printf(&r->out, "{\"type\":\"pty_ready\",\"session_id\":\"%s\"}\n", r->other);
		r->streaming = true;
		stream_touch(r);
		attach(r, 0);
	}
}

static const struct process_list_sink start_sink = {.process = on_started, .ended = on_start_end};

void serve_pty_start(struct request *r, const struct pty_start_body *b)
{
	const char *const shell[] = {"bash", "-lc", b->shell_cmd.p, NULL};
	char label[COMMAND_LABEL_MAX + 1] = "";
	const struct process_spec spec = {
		.argv = b->shell_cmd.p ? shell : (const char *const *)b->argv,
		.label = label,
		.cwd = b->cwd.len ? b->cwd.p : NULL,
		.env = (const char *const *)b->env,
		.tty = true,
		.cols = b->cols,
		.rows = b->rows,
		.must_run = true,
	};

	if (!command_is_good(r, "shellCmd", b->shell_cmd.p, b->argv))
		return;
	command_label(label, b->shell_cmd.p, b->argv);
	request_ref(r);
	r->op = service_process_start(r->service, r->tenant, r->id, &spec, &start_sink, r);
}

/* --- read ----------------------------------------------------------------------------------- */

static void on_read(void *arg, const struct process_output *out, const struct failure *f)
{
	struct request *r = arg;
	struct failure copy;

	/* A refused read can be repeated: the guest keeps the output. */
	if (!request_called_well(r, of_pty(f, &copy)) || !answer_has_room(r, out->len / 3 * 4))
		return;
	text_puts(&r->out, "{\"data_b64\":");
	json_base64(&r->out, out->data, out->len);
	text_printf(&r->out, ",\"next_seq\":%llu", (unsigned long long)out->next);
	if (out->exited)
		text_printf(&r->out, ",\"exit_code\":%d", out->exit_code);
	text_puts(&r->out, "}\n");
	answer(r, 200, "application/json");
}

void serve_pty_read(struct request *r, const struct pty_read_body *b)
{
	const struct process_read read = {
		.place = b->since_seq,
		.max_bytes = b->max_bytes,
		.timeout_ms = b->timeout_ms,
	};

	if (!answer_may_be_long(r))
		return;
	request_ref(r);
	r->op = service_process_read(r->service, r->tenant, r->id, r->other, &read, on_read, r);
}

/* --- input, resize, kill -------------------------------------------------------------------- */

static void on_done(void *arg, const struct failure *f)
{
	struct failure copy;

	request_done(arg, of_pty(f, &copy));
}

/* Copies the input, because the body is freed before the terminal has taken the input. */
void serve_pty_input(struct request *r, const struct pty_input_body *b)
{
	h2o_iovec_t copy = h2o_strdup(&r->req->pool, b->data_b64.p, b->data_b64.len);

	request_ref(r);
	r->op = service_process_input(r->service, r->tenant, r->id, r->other, copy.base, copy.len,
				      on_done, r);
}

void serve_pty_resize(struct request *r, const struct pty_size_body *b)
{
	process_do(r,
		   (struct agent_process_request){.type = AGENT_PROC_RESIZE,
						  .cols = (uint16_t)b->cols,
						  .rows = (uint16_t)b->rows},
		   on_done);
}

void serve_pty_kill(struct request *r)
{
	process_do(r, (struct agent_process_request){.type = AGENT_PROC_KILL}, on_done);
}

/* --- list ----------------------------------------------------------------------------------- */

static void on_listed(void *arg, const struct process_view *p)
{
	struct request *r = arg;
	struct text *t = &r->out;

	if (!p->tty)
		return;
	text_printf(t, "%s{\"pty_id\":\"%s\",\"cmd_label\":", t->len ? "," : "[", p->id);
	json_string(t, p->label, p->label_len);
	text_printf(t, ",\"created_at_ms\":%lld,\"exit_code\":", (long long)p->started_ms);
	if (p->ended)
		text_number(t, p->exit.code);
	else
		text_puts(t, "null");
	text_putc(t, '}');
}

static const struct process_list_sink list_sink = {.process = on_listed, .ended = request_listed};

void serve_ptys(struct request *r)
{
	if (!answer_may_be_long(r))
		return;
	request_ref(r);
	r->op = service_process_list(r->service, r->tenant, r->id, NULL, &list_sink, r);
}
