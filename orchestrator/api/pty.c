// SPDX-License-Identifier: Apache-2.0
/* Terminals of a sandbox. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/api/process.h"
#include "orchestrator/api/query.h"
#include "orchestrator/guestops/guestops.h"

/* --- the stream ----------------------------------------------------------------------------- */

static void add_failure(struct text *t, const struct failure *f)
{
	const char *code = failure_code_name(f->code);

	text_puts(t, "{\"type\":\"pty_error\",\"message\":");
	json_string(t, f->text, strlen(f->text));
	text_puts(t, ",\"code\":");
	json_string(t, code, strlen(code));
	text_puts(t, "}\n");
}

/* Sends the head of the answer at once. */
static void on_found(void *arg)
{
	struct request *r = arg;

	r->streaming = true;
	text_putc(&r->out, '\n');
	stream_touch(r);
}

static void on_output(void *arg, uint64_t offset, const void *data, size_t len)
{
	struct request *r = arg;

	text_puts(&r->out, "{\"type\":\"pty_data\",\"data_b64\":");
	json_base64(&r->out, data, len);
	text_printf(&r->out, ",\"seq\":%llu}\n", (unsigned long long)offset);
	stream_touch(r);
	stream_hold(r);
}

static void on_exited(void *arg, int code)
{
	struct request *r = arg;

	if (!request_called(r))
		return;
	text_printf(&r->out, "{\"type\":\"pty_exit\",\"data\":%d}\n", code);
	stream_end(r, false);
}

static void on_failed(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (!stream_called_late(r, f))
		return;
	add_failure(&r->out, f);
	stream_end(r, true);
}

static const struct pty_sink attach_sink = {
	.found = on_found, .bytes = on_output, .exited = on_exited, .failed = on_failed};
/* For a terminal that was just started: no `found` is needed, since pty_ready has begun the
 * answer. */
static const struct pty_sink start_sink = {
	.bytes = on_output, .exited = on_exited, .failed = on_failed};

static void attach(struct request *r, const struct pty_sink *sink, uint64_t offset)
{
	request_ref(r);
	r->call = core_pty_attach(r->api->core, r->tenant, r->id, r->other, offset, sink, r);
}

void serve_pty_attach(struct request *r)
{
	struct sandbox_view view;
	struct failure f;
	uint64_t offset = 0;

	if (!ask_number(r, "since_seq", &offset))
		return;
	if (!request_is_head(r))
		attach(r, &attach_sink, offset);
	else if (core_view(r->api->core, r->tenant, r->id, &view, &f))
		answer_head(r, 200, "application/x-ndjson", SIZE_MAX);
	else
		answer_failure(r, &f);
}

/* --- start ---------------------------------------------------------------------------------- */

static void on_started(void *arg, const char *id, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called(r))
		return;
	if (f && f->code != FAIL_PTY_FAILED) {
		answer_failure(r, f);
		return;
	}
	if (f) {
		add_failure(&r->out, f);
		stream_end(r, false);
		return;
	}
	memcpy(r->other, id, sizeof(r->other));
	r->made_program = true;
	text_printf(&r->out, "{\"type\":\"pty_ready\",\"session_id\":\"%s\"}\n", id);
	r->streaming = true;
	stream_touch(r);
	attach(r, &start_sink, 0);
}

static void start(struct request *r, const void *values)
{
	const struct pty_start_body *b = values;
	const char *const shell[] = {"bash", "-lc", b->shell_cmd.p, NULL};
	char label[COMMAND_LABEL_MAX + 1] = "";
	const struct pty_spec spec = {
		.argv = b->shell_cmd.p ? shell : (const char *const *)b->argv,
		.label = label,
		.cols = b->cols,
		.rows = b->rows,
		.cwd = b->cwd.len ? b->cwd.p : NULL,
		.env = (const char *const *)b->env,
	};

	if (!command_is_good(r, "shellCmd", b->shell_cmd.p, b->argv))
		return;
	command_label(label, b->shell_cmd.p, b->argv);
	request_ref(r);
	r->call = core_pty_start(r->api->core, r->tenant, r->id, &spec, on_started, r);
}

void serve_pty_start(struct request *r)
{
	body_read(r, &pty_start_json, start);
}

/* --- read ----------------------------------------------------------------------------------- */

static void on_read(void *arg, const struct pty_output *out, const struct failure *f)
{
	struct request *r = arg;

	/* A refused read can be repeated: the guest keeps the output. */
	if (!request_called_well(r, f) || !answer_has_room(r, out->len / 3 * 4))
		return;
	text_puts(&r->out, "{\"data_b64\":");
	json_base64(&r->out, out->data, out->len);
	text_printf(&r->out, ",\"next_seq\":%llu", (unsigned long long)out->next);
	if (out->exited)
		text_printf(&r->out, ",\"exit_code\":%d", out->exit_code);
	text_puts(&r->out, "}\n");
	answer(r, 200, "application/json");
}

static void read_output(struct request *r, const void *values)
{
	const struct pty_read_body *b = values;
	const struct pty_read read = {
		.place = b->since_seq,
		.max_bytes = b->max_bytes,
		.timeout_ms = b->timeout_ms,
	};

	request_ref(r);
	r->call = core_pty_read(r->api->core, r->tenant, r->id, r->other, &read, on_read, r);
}

void serve_pty_read(struct request *r)
{
	if (answer_may_be_long(r))
		body_read(r, &pty_read_json, read_output);
}

/* --- input, resize, kill -------------------------------------------------------------------- */

/* Copies the input, because the body is freed before the terminal has taken the input. */
static void input(struct request *r, const void *values)
{
	const struct pty_input_body *b = values;
	h2o_iovec_t copy = h2o_strdup(&r->req->pool, b->data_b64.p, b->data_b64.len);

	request_ref(r);
	r->call = core_pty_input(r->api->core, r->tenant, r->id, r->other, copy.base, copy.len,
				 request_done, r);
}

void serve_pty_input(struct request *r)
{
	body_read(r, &pty_input_json, input);
}

static void resize(struct request *r, const void *values)
{
	const struct pty_size_body *b = values;

	request_ref(r);
	r->call = core_pty_resize(r->api->core, r->tenant, r->id, r->other, b->cols, b->rows,
				  request_done, r);
}

void serve_pty_resize(struct request *r)
{
	body_read(r, &pty_size_json, resize);
}

void serve_pty_kill(struct request *r)
{
	request_ref(r);
	r->call = core_pty_kill(r->api->core, r->tenant, r->id, r->other, request_done, r);
}

/* --- list ----------------------------------------------------------------------------------- */

static void on_pty(void *arg, const struct pty_view *p)
{
	struct request *r = arg;
	struct text *t = &r->out;

	text_printf(t, "%s{\"pty_id\":\"%s\",\"cmd_label\":", t->len ? "," : "[", p->id);
	json_string(t, p->label, p->label_len);
	text_printf(t, ",\"created_at_ms\":%lld,\"exit_code\":", (long long)p->started_at_ms);
	if (p->ended)
		text_number(t, p->exit_code);
	else
		text_puts(t, "null");
	text_putc(t, '}');
}

static void on_ptys_end(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	text_puts(&r->out, r->out.len ? "]\n" : "[]\n");
	answer(r, 200, "application/json");
}

static const struct pty_list_sink list_sink = {.pty = on_pty, .ended = on_ptys_end};

void serve_ptys(struct request *r)
{
	if (!answer_may_be_long(r))
		return;
	request_ref(r);
	r->call = core_pty_list(r->api->core, r->tenant, r->id, &list_sink, r);
}
