// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/exec/exec.h"
#include "orchestrator/http/counters.h"
#include "orchestrator/json/json.h"
#include "proto/agent.h"

/* --- events from the service ---------------------------------------------------------------- */

static void on_started(void *arg)
{
	struct request *r = arg;

	r->streaming = true;
}

static void on_event(void *arg, const struct event *ev)
{
	struct request *r = arg;

	if (!stream_takes(r, ev->len))
		return;
	event_line(&r->out, ev, NULL);
	if (ev->type == EVENT_EXIT) {
		metrics_time(r->http, TIMED_EXEC, now_us() - r->began_us);
		if (request_called(r))
			stream_end(r, false);
		return;
	}
	stream_touch(r);
	stream_hold(r);
}

/* Reports the failure of a call. Once the first line was sent, the HTTP status cannot do that:
 * sends a last line instead, and cuts the stream off for clients that don't know that line. */
static void on_failed(void *arg, const struct failure *f, const struct event *ev)
{
	struct request *r = arg;

	if (!stream_called_late(r, f))
		return;
	event_line(&r->out, ev, NULL);
	stream_end(r, true);
}

static const struct exec_sink sink = {on_started, on_event, on_failed};

/* --- the request ---------------------------------------------------------------------------- */

static bool text_is(const struct json_text *text, const char *word)
{
	return text->p && strcmp(text->p, word) == 0;
}

static bool context_is_good(struct request *r, const struct exec_body *b)
{
	if (!b->context.p)
		return true;
	if (b->language.p)
		answer_error(r, 400, "bad_request",
			     "language and context cannot be combined: a context has its own "
			     "language");
	else if (!id_valid("ctx_", b->context.p, b->context.len))
		answer_error(r, 404, "no_such_context", "there is no context %.64s in this sandbox",
			     b->context.p);
	else
		return true;
	return false;
}

void serve_exec(struct request *r, const struct exec_body *b)
{
	struct exec_spec spec = {
		.context = b->context.p,
		.code = b->code.p,
		.code_len = b->code.len,
		.bash = text_is(&b->language, "bash"),
		.chunks = text_is(&b->output, "chunks"),
		.results = b->results,
		.timeout_ms = b->timeout_ms,
		.cwd = b->cwd.len ? b->cwd.p : NULL,
		.env = (const char *const *)b->env,
		.traceparent = r->traceparent[0] ? r->traceparent : NULL,
	};

	if (!context_is_good(r, b))
		return;
	r->hangup = b->hangup;
	request_ref(r);
	r->op = service_exec(r->service, r->tenant, r->id, &spec, &sink, r);
}

/* --- replay --------------------------------------------------------------------------------- */

struct past {
	struct request *r;
	size_t left;
};

static void add_event(void *arg, const struct event *ev, const char *traceparent)
{
	struct past *past = arg;

	if (!past->left)
		return;
	past->left--;
	event_line(&past->r->out, ev, traceparent);
}

static void on_follow_started(void *arg)
{
	struct request *r = arg;

	r->streaming = true;
	stream_touch(r);
}

static void on_follow_event(void *arg, const struct event *ev, const char *traceparent)
{
	struct request *r = arg;

	if (!stream_takes(r, ev->len))
		return;
	event_line(&r->out, ev, traceparent);
	stream_touch(r);
	stream_hold(r);
}

static const struct follow_sink follow_sink = {on_follow_started, on_follow_event, stream_ended};

static void follow(struct request *r, uint64_t since)
{
	if (stream_is_head(r))
		return;
	request_ref(r);
	r->op = service_follow(r->service, r->tenant, r->id, since, &follow_sink, r);
}

void serve_replay(struct request *r)
{
	bool follows = false;
	struct past past = {.r = r, .left = SIZE_MAX};
	uint64_t since = 0;
	struct failure f;

	if (!ask_number(r, "since", 0, &since) || !ask_flag(r, "follow", &follows) ||
	    !ask_limit(r, &past.left) || !answer_may_be_long(r))
		return;
	if (follows && past.left != SIZE_MAX)
		answer_error(r, 400, "bad_request", "limit cannot be combined with follow");
	else if (follows)
		follow(r, since);
	else if (service_replay(r->service, r->tenant, r->id, since, add_event, &past, &f))
		answer(r, 200, "application/x-ndjson");
	else
		answer_failure(r, &f);
}
