// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/http/internal.h"

uint64_t now_us(void)
{
	return now_ns() / 1000;
}

/* --- life cycle ----------------------------------------------------------------------------- */

void request_ref(struct request *r)
{
	exchange(r)->refs++;
}

void request_unref(struct request *r)
{
	struct exchange *x = exchange(r);

	if (--x->refs)
		return;
	keyed_answered(r, 0);
	text_free(&r->out);
	text_free(&x->sending);
	if (r->ops && r->ops->free)
		r->ops->free(r);
	free(r->state);
	free(x);
}

static void poll_stop(struct request *r)
{
	struct exchange *x = exchange(r);

	if (x->peer_poll)
		loop_cancel(r->loop, x->peer_poll);
	x->peer_poll = NULL;
}

void request_leave_call(struct request *r)
{
	if (!r->op || keyed_continues(r))
		return;
	/* The service reported the program, but the client did not learn of it. */
	if (r->made_program && !r->started)
		op_hang_up(r->op);
	else
		op_abandon(r->op);
	r->op = NULL;
	request_unref(r);
}

/* Leaves the call of a client that has left. The service itself disconnects clients that read
 * nothing for long, and all clients when it ends; those may come back. */
static void leave_for_client(struct request *r)
{
	if (!r->op || !r->hangup || exchange(r)->conn->cut || r->http->draining) {
		request_leave_call(r);
		return;
	}
	op_hang_up(r->op);
	r->op = NULL;
	request_unref(r);
}

/* Called when h2o frees the request's memory pool, which is the only hook that works in every state
 * of a request. h2o_send is not allowed here. */
static void on_gone(void *at)
{
	struct request *r = *(struct request **)at;
	struct exchange *x = exchange(r);

	if (!x->finished && r->req->version >= 0x200)
		conn_count_reset(x->conn);
	access_log_request(r->http, r);
	trace_end(r, r->started ? x->status : 499);
	poll_stop(r);
	if (r->ops && r->ops->gone)
		r->ops->gone(r);
	list_del(&x->dirty_link);
	r->req = NULL;
	atomic_store(&r->unwanted, true);
	leave_for_client(r);
	conn_ended(x->conn);
	http_request_ended(r->http, r);
	request_unref(r);
}

static void on_proceed(h2o_generator_t *generator, h2o_req_t *req);

/* Finds the client's address. Reads the headers from the last to the first, since each proxy
 * appends to the last one. */
static void find_client(struct request *r)
{
	struct exchange *x = exchange(r);
	static const char name[] = "x-forwarded-for";
	const h2o_headers_t *headers = &r->req->headers;
	bool read = true;

	r->from = x->conn->peer;
	for (size_t i = headers->size; x->conn->proxied && read && i > 0; i--) {
		const h2o_header_t *field = &headers->entries[i - 1];

		if (h2o_memis(field->name->base, field->name->len, name, sizeof(name) - 1))
			read = client_forwarded(&r->from, field->value.base, field->value.len,
						r->config->trusted_proxies);
	}
	x->local = x->conn->local && read && memcmp(&r->from, &x->conn->peer, sizeof(r->from)) == 0;
}

struct request *request_new(struct http *h, h2o_req_t *req)
{
	struct exchange *x = must_alloc(sizeof(*x));
	struct request *r = &x->r;

	r->http = h;
	r->api = h->api;
	r->loop = h->loop;
	r->service = h->service;
	r->config = h->config;
	r->req = req;
	x->conn = conn_began(req);
	x->refs = 1;
	r->began_us = now_us();
	x->moved_ms = r->began_us / 1000;
	x->generator.proceed = on_proceed;
	list_init(&x->link);
	list_init(&x->dirty_link);
	list_init(&x->left_link);
	*(struct request **)h2o_mem_alloc_shared(&req->pool, sizeof(r), on_gone) = r;
	find_client(r);
	trace_read(r);
	http_request_began(h, r);
	return r;
}

const h2o_iovec_t *request_header(const struct request *r, const char *name)
{
	ssize_t at = h2o_find_header_by_str(&r->req->headers, name, strlen(name), -1);

	return at < 0 ? NULL : &r->req->headers.entries[at].value;
}

bool request_called(struct request *r)
{
	struct exchange *x = exchange(r);
	bool here = r->req && list_empty(&x->left_link);

	r->op = NULL;
	list_del(&x->left_link);
	request_unref(r);
	return here;
}

bool request_called_well(struct request *r, const struct failure *f)
{
	bool here = request_called(r);

	if (here && f)
		answer_failure(r, f);
	return here && !f;
}

void request_done(void *arg, const struct failure *f)
{
	if (request_called_well(arg, f))
		answer_status(arg, 204);
}

void request_listed(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	text_puts(&r->out, r->out.len ? "]\n" : "[]\n");
	answer(r, 200, "application/json");
}

/* --- answers -------------------------------------------------------------------------------- */

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
	req->res.status = status;
	req->res.content_length = length;
	req->res.reason = phrase;
	if (r->http->draining)
		req->http1_is_persistent = 0;
	h2o_start_response(req, &x->generator);
}

static void head(struct request *r, int status, size_t length, const char *content_type)
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
		poll_stop(r); /* the poll would keep the socket open after h2o closed it */
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

bool request_is_head(const struct request *r)
{
	h2o_iovec_t method = r->req->input.method;

	return h2o_memis(method.base, method.len, H2O_STRLIT("HEAD"));
}

void answer(struct request *r, int status, const char *content_type)
{
	if (list_empty(&exchange(r)->left_link))
		keyed_answered(r, status);
	head(r, status, r->out.len, content_type);
	if (request_is_head(r))
		r->out.len = 0;
	r->ended = true;
	send_out(r, H2O_SEND_STATE_FINAL);
}

bool request_same_tenant(const struct request *r, const struct request *other)
{
	return other->tenant && strcmp(r->tenant, other->tenant) == 0;
}

/* Returns in `waiting` and `own` the bytes that wait for slow readers, of all tenants and of the
 * request's. */
static bool answers_have_room(const struct request *r, size_t *waiting, size_t *own)
{
	const size_t most = http_limits.answers_bytes;

	*waiting = *own = 0;
	list_each (pos, &r->http->live) {
		const struct request *other = live_request(pos);
		size_t len = other->out.len + exchange(other)->sending.len + other->reserved;

		*waiting += len;
		*own += request_same_tenant(r, other) ? len : 0;
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
	head(r, status, length, content_type);
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

	head(r, 200, len, content_type);
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

void stream_begin(struct request *r, int status, const char *content_type, size_t length)
{
	head(r, status, length, content_type);
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
		head(r, 200, SIZE_MAX, "application/x-ndjson");
	/* Data of a cut-off answer is sent before the reset: an HTTP/2 client may drop data that
	 * arrives together with a reset. */
	if (r->ended && !(x->broken && r->out.len))
		state = x->broken ? H2O_SEND_STATE_ERROR : H2O_SEND_STATE_FINAL;
	send_out(r, state);
}

void stream_touch(struct request *r)
{
	struct exchange *x = exchange(r);

	if (r->req && !x->in_flight && x->dirty_link.next == &x->dirty_link)
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

/* h2o has sent the previous chunk and wants more. */
static void on_proceed(h2o_generator_t *generator, h2o_req_t *req)
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

	list_each_safe (pos, &h->dirty) {
		list_del(pos);
		flush_stream(&container_of(pos, struct exchange, dirty_link)->r);
	}
	access_flush(h);
}

/* --- the client's end ----------------------------------------------------------------------- */

void request_cut(struct request *r, int status, const char *code, const char *reason)
{
	struct exchange *x = exchange(r);

	r->req->http1_is_persistent = 0;
	request_leave_call(r); /* its callback would answer a second time */
	if (x->in_flight)
		conn_cut(x->conn); /* h2o detects it at the write in flight */
	else if (r->started)
		stream_end(r, true);
	else
		answer_error(r, status, code, "%s", reason);
}

/* HTTP/1 only: h2o does not read while a request is served, so it would not see the client leave.
 */
static void on_peer_gone(void *arg, int result)
{
	struct request *r = arg;
	struct exchange *x = exchange(r);
	bool gone = r->req && x->peer_poll && result > 0;

	x->peer_poll = NULL;
	if (gone) {
		leave_for_client(r);
		request_cut(r, 499, "client_gone", "the client closed the connection");
	}
	request_unref(r);
}

void request_watch(struct request *r)
{
	struct exchange *x = exchange(r);

	if (x->peer_poll || r->req->version >= 0x200)
		return;
	x->peer_poll =
		loop_poll(r->loop, h2o_socket_get_fd(x->conn->sock), POLLRDHUP, on_peer_gone, r);
	if (x->peer_poll)
		request_ref(r);
}

void request_began(struct request *r)
{
	if (!r->req || !r->op)
		return;
	keyed_called(r);
	if (route_changes(r->route))
		request_watch(r);
}

void request_tick(struct request *r, uint64_t now_ms)
{
	struct exchange *x = exchange(r);
	uint64_t quiet_ms = now_ms > x->moved_ms ? now_ms - x->moved_ms : 0;

	if (x->in_flight) {
		if (quiet_ms >= http_limits.write_ms) {
			r->http->counters.stalled_cut++;
			conn_cut(x->conn);
		}
		return;
	}
	if (x->finished)
		return;
	if (r->streaming && quiet_ms >= http_limits.silence_ms) {
		text_putc(&r->out, '\n');
		stream_touch(r);
	}
	request_watch(r);
	body_tick(r, now_ms);
}

/* --- requests that are passed on ------------------------------------------------------------- */

const char *request_scheme(const struct request *r)
{
	const h2o_iovec_t *said = request_header(r, "x-forwarded-proto");

	if (exchange(r)->conn->proxied && said &&
	    h2o_memis(said->base, said->len, H2O_STRLIT("https")))
		return "https";
	return r->req->input.scheme == &H2O_URL_SCHEME_HTTPS ? "https" : "http";
}

void request_moved(struct request *r)
{
	exchange(r)->moved_ms = loop_now_ms(r->loop);
}

bool request_is_finished(const struct request *r)
{
	return exchange(r)->finished;
}

void request_upgrade(struct request *r, struct conn **conn, h2o_http1_upgrade_cb fn, void *arg)
{
	struct exchange *x = exchange(r);
	h2o_req_t *req = r->req;

	*conn = conn_began(req);
	r->op = NULL;
	x->status = 101;
	r->started = r->ended = x->finished = true;
	req->res.status = 101;
	req->res.reason = "Switching Protocols";
	req->res.content_length = SIZE_MAX;
	answer_header(r, "upgrade",
		      h2o_strdup(&req->pool, req->upgrade.base, req->upgrade.len).base);
	poll_stop(r);	  /* before h2o hands over the connection */
	request_unref(r); /* held for the call; h2o holds another one */
	h2o_http1_upgrade(req, NULL, 0, fn, arg);
}
