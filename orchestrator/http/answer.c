// SPDX-License-Identifier: Apache-2.0
/* Answers, at once or as streams, and what waits for slow readers. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/elements.h"
#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/http/internal.h"

static const char *reason(int status)
{
	static const struct {
		int status;
		const char *phrase;
	} known[] = {
		{200, "OK"},
		{201, "Created"},
		{204, "No Content"},
		{206, "Partial Content"},
		{303, "See Other"},
		{304, "Not Modified"},
		{308, "Permanent Redirect"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{413, "Content Too Large"},
		{416, "Range Not Satisfiable"},
		{422, "Unprocessable Content"},
		{426, "Upgrade Required"},
		{429, "Too Many Requests"},
		{500, "Internal Server Error"},
		{502, "Bad Gateway"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{507, "Insufficient Storage"},
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (known[i].status == status)
			return known[i].phrase;
	return "Refused";
}

static void head_as(struct request *r, int status, const char *phrase, size_t length)
{
	struct exchange *x = exchange(r);
	h2o_req_t *req = r->req;

	x->status = status;
	r->started = true;
	if (x->conn->from_peer)
		r->http->ops.to_peer(r);
	req->res.status = status;
	req->res.content_length = length;
	req->res.reason = phrase;
	if (r->http->draining)
		req->http1_is_persistent = 0;
	h2o_start_response(req, &x->generator);
}

void answer_begin(struct request *r, int status, const char *content_type, size_t length)
{
	h2o_req_t *req = r->req;

	if (content_type)
		h2o_add_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL,
			       content_type, strlen(content_type));
	head_as(r, status, reason(status), length);
}

/* Hands `out` to h2o; `state` is in progress if more text follows. `r` may be freed afterwards. */
static void send_out(struct request *r, h2o_send_state_t state)
{
	struct exchange *x = exchange(r);
	struct text empty = x->sending;

	empty.len = 0;
	x->sending = r->out;
	r->out = empty;
	x->in_flight = true;
	x->finished = !h2o_send_state_is_in_progress(state);
	if (x->finished)
		request_unwatch(r); /* the poll would keep the socket open after h2o closed it */
	x->moved_ms = loop_now_ms(r->loop);
	x->bytes += x->sending.len;
	h2o_iovec_t buf = {x->sending.p, x->sending.len};
	h2o_send(r->req, &buf, buf.len ? 1 : 0, state);
}

void answer_header(struct request *r, const char *name, const char *value)
{
	h2o_mem_pool_t *pool = &r->req->pool;
	h2o_iovec_t n = h2o_strdup(pool, name, SIZE_MAX), v = h2o_strdup(pool, value, SIZE_MAX);

	h2o_add_header_by_str(pool, &r->req->res.headers, n.base, n.len, 1, NULL, v.base, v.len);
}

void answer_retry_after(struct request *r, unsigned seconds)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", seconds);
	answer_header(r, "retry-after", text);
}

void answer(struct request *r, int status, const char *content_type)
{
	if (list_empty(&exchange(r)->left_link))
		keyed_answered(r, status);
	answer_begin(r, status, content_type, r->out.len);
	if (request_is_head(r))
		r->out.len = 0;
	r->ended = true;
	send_out(r, H2O_SEND_STATE_FINAL);
}

/* Returns in `waiting` and `own` the bytes that wait for slow readers, of all tenants and of the
 * request's. */
static bool answers_have_room(const struct request *r, size_t *waiting, size_t *own)
{
	const size_t most = http_limits.answers_bytes;

	*waiting = *own = 0;
	list_each_of (x, const struct exchange, link, &r->http->live) {
		size_t len = x->r.out.len + x->sending.len + x->r.reserved;

		*waiting += len;
		*own += request_same_tenant(r, &x->r) ? len : 0;
	}
	return r->key ? fair_share(*waiting, *own, most) : *waiting < most;
}

bool answer_may_be_long(struct request *r)
{
	size_t waiting, own;

	if (answers_have_room(r, &waiting, &own))
		return true;
	answer_retry_after(r, 1);
	if (waiting < http_limits.answers_bytes) {
		answer_error(r, 429, "too_many",
			     "%zu MiB of answers wait for slow readers with this API key: read "
			     "them, then try again",
			     own >> 20);
		return false;
	}
	answer_error(r, 503, "busy", "%zu MiB of answers wait for slow readers: try again in 1 s",
		     waiting >> 20);
	return false;
}

bool answer_has_room(struct request *r, size_t len)
{
	return len <= STREAM_PAUSE_SIZE || answer_may_be_long(r);
}

void answer_head(struct request *r, int status, const char *content_type, size_t length)
{
	answer_begin(r, status, content_type, length);
	r->ended = true;
	send_out(r, H2O_SEND_STATE_FINAL);
}

void answer_status(struct request *r, int status)
{
	answer_head(r, status, NULL, SIZE_MAX);
}

void answer_file(struct request *r, const char *content_type, const void *data, size_t len)
{
	struct exchange *x = exchange(r);
	h2o_iovec_t buf = {(char *)data, request_is_head(r) ? 0 : len};

	answer_begin(r, 200, content_type, len);
	r->ended = x->finished = true;
	x->bytes = buf.len;
	h2o_send(r->req, &buf, buf.len ? 1 : 0, H2O_SEND_STATE_FINAL);
}

void answer_error(struct request *r, int status, const char *code, const char *format, ...)
{
	char sentence[2 * ERR_TEXT_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	metrics_error(r->http, code);
	r->out.len = 0;
	json_error(&r->out, sentence, code);
	answer(r, status, "application/json");
}

/* Answers 500 for a failure of the service, with an id that is also in the log. */
static void answer_fault(struct request *r, const char *code, const char *text)
{
	h2o_iovec_t path = access_path(r->req->input.path);
	uint64_t id = 0;

	if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != sizeof(id))
		id = now_us();
	log_error("fault %016llx: %.*s %.*s: %s", (unsigned long long)id,
		  (int)r->req->input.method.len, r->req->input.method.base, (int)path.len,
		  path.base, text);
	answer_error(r, 500, code, "%s (in the log: fault %016llx)", text, (unsigned long long)id);
}

void answer_failure(struct request *r, const struct failure *f)
{
	const char *code = failure_code_name(f->code);
	int status = failure_status(f->code);

	if (f->code == FAIL_CAP_REACHED && f->lacks && r->http->ops.capped(r, f))
		return;
	if (status == 500) {
		answer_fault(r, code, f->text);
		return;
	}
	if (f->retry_after)
		answer_retry_after(r, f->retry_after);
	answer_error(r, status, code, "%s", f->text);
}

/* --- streams -------------------------------------------------------------------------------- */

bool stream_is_head(struct request *r)
{
	struct sandbox_view view;
	struct failure f;

	if (!request_is_head(r))
		return false;
	if (service_view(r->service, r->tenant, r->id, &view, &f))
		answer_head(r, 200, "application/x-ndjson", SIZE_MAX);
	else
		answer_failure(r, &f);
	return true;
}

void stream_begin_as(struct request *r, int status, const char *phrase, size_t length)
{
	head_as(r, status, phrase, length);
	exchange(r)->head_due = true;
}

void stream_hold(struct request *r)
{
	struct exchange *x = exchange(r);

	if (r->out.len < STREAM_PAUSE_SIZE || x->paused || !r->op)
		return;
	x->paused = true;
	op_pause(r->op);
}

bool stream_takes(struct request *r, size_t len)
{
	size_t waiting, own;

	if (len <= STREAM_PAUSE_SIZE || answers_have_room(r, &waiting, &own))
		return true;
	r->http->counters.stalled_cut++;
	request_leave_call(r);
	stream_end(r, true);
	return false;
}

static void flush_stream(struct request *r)
{
	struct exchange *x = exchange(r);
	h2o_send_state_t state = H2O_SEND_STATE_IN_PROGRESS;

	if (x->in_flight || x->finished || (!r->out.len && !r->ended && !x->head_due))
		return;
	x->head_due = false;
	if (!r->started)
		answer_begin(r, 200, "application/x-ndjson", SIZE_MAX);
	/* Data of a cut-off answer is sent before the reset: an HTTP/2 client may drop data that
	 * arrives together with a reset. */
	if (r->ended && !(x->broken && r->out.len))
		state = x->broken ? H2O_SEND_STATE_ERROR : H2O_SEND_STATE_FINAL;
	send_out(r, state);
}

void stream_touch(struct request *r)
{
	struct exchange *x = exchange(r);

	if (r->req && !x->in_flight && list_empty(&x->dirty_link))
		list_add_tail(&r->http->dirty, &x->dirty_link);
}

void stream_end(struct request *r, bool broken)
{
	r->ended = true;
	exchange(r)->broken = broken;
	stream_touch(r);
}

bool stream_called_late(struct request *r, const struct failure *f)
{
	if (!request_called(r))
		return false;
	if (r->started || r->out.len)
		return true;
	answer_failure(r, f);
	return false;
}

void stream_ended(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (f ? stream_called_late(r, f) : request_called(r))
		stream_end(r, f != NULL);
}

void answer_proceed(h2o_generator_t *generator, h2o_req_t *req)
{
	struct request *r = &container_of(generator, struct exchange, generator)->r;
	struct exchange *x = exchange(r);

	x->in_flight = false;
	x->moved_ms = loop_now_ms(r->loop);
	if (x->sending.room > 4 * STREAM_PAUSE_SIZE)
		text_free(&x->sending);
	if (x->paused && r->op && r->out.len < STREAM_PAUSE_SIZE) {
		x->paused = false;
		op_resume(r->op);
	}
	if (r->ops && r->ops->taken)
		r->ops->taken(r);
	flush_stream(r);
}

void http_flush(void *arg)
{
	struct http *h = arg;

	list_each_of_safe (x, struct exchange, dirty_link, &h->dirty) {
		list_del(&x->dirty_link);
		flush_stream(&x->r);
	}
	access_flush(h);
}
