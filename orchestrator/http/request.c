// SPDX-License-Identifier: Apache-2.0
/* The life of a request, from its headers to the end of its client. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
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

void request_unwatch(struct request *r)
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
	request_unwatch(r);
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

/* Finds the client's address. Reads the headers from the last to the first, since each proxy
 * appends to the last one. */
static void find_client(struct request *r)
{
	struct exchange *x = exchange(r);
	static const char name[] = "x-forwarded-for";
	const h2o_headers_t *headers = &r->req->headers;
	/* A peer sends one address, the client's. It is the result, since every address counts as
	 * that of a proxy. */
	const char *trusted = x->conn->from_peer ? "0.0.0.0/0,::/0" : r->config->trusted_proxies;
	bool read = true;

	r->from = x->conn->peer;
	for (size_t i = headers->size; x->conn->proxied && read && i > 0; i--) {
		const h2o_header_t *field = &headers->entries[i - 1];

		if (h2o_memis(field->name->base, field->name->len, name, sizeof(name) - 1))
			read = client_forwarded(&r->from, field->value.base, field->value.len,
						trusted);
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
	x->generator.proceed = answer_proceed;
	if (x->conn->from_peer && loop_now_ms(h->loop) - x->conn->began_ms >= PEER_CONN_MS)
		req->http1_is_persistent = 0;
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

bool request_is_head(const struct request *r)
{
	h2o_iovec_t method = r->req->input.method;

	return h2o_memis(method.base, method.len, H2O_STRLIT("HEAD"));
}

bool request_same_tenant(const struct request *r, const struct request *other)
{
	return other->tenant && strcmp(r->tenant, other->tenant) == 0;
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

void request_made(struct request *r, int status, const struct failure *f)
{
	request_ref(r);
	if (request_called_well(r, f))
		answer(r, status, "application/json");
	else if (!f)
		keyed_answered(r, status);
	request_unref(r);
}

void request_done_200(void *arg, const struct failure *f)
{
	request_made(arg, 200, f);
}

void request_done_201(void *arg, const struct failure *f)
{
	request_made(arg, 201, f);
}

void request_listed(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	text_puts(&r->out, r->out.len ? "]\n" : "[]\n");
	answer(r, 200, "application/json");
}

/* --- the client's end ----------------------------------------------------------------------- */

void request_cut(struct request *r, int status, const char *code, const char *reason)
{
	struct exchange *x = exchange(r);

	r->req->http1_is_persistent = 0;
	request_leave_call(r); /* its callback would answer a second time */
	if (x->in_flight)
		conn_cut(x->conn); /* h2o notices that at its write in flight */
	else if (r->started)
		stream_end(r, true);
	else
		answer_error(r, status, code, "%s", reason);
}

void request_fail(struct request *r, const struct failure *f)
{
	request_cut(r, failure_status(f->code), failure_code_name(f->code), f->text);
}

bool http_is_from_peer(const h2o_req_t *req)
{
	return conn_of((h2o_req_t *)req)->from_peer;
}

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

	if (x->peer_poll)
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
	/* With HTTP/2, h2o itself notices that the client has left, but perhaps only after the
	 * guest's answer. */
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
	if (r->req->version < 0x200) /* h2o does not read while it serves such a request */
		request_watch(r);
	body_tick(r, now_ms);
}

/* --- requests that are passed on ------------------------------------------------------------- */

const char *request_scheme(const struct request *r)
{
	const h2o_iovec_t *said = request_header(r, "x-forwarded-proto");
	const struct conn *c = exchange(r)->conn;

	if (c->proxied && said && h2o_memis(said->base, said->len, H2O_STRLIT("https")))
		return "https";
	if (c->from_peer) /* over TLS, whatever the client used */
		return "http";
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
	request_unwatch(r); /* before h2o hands over the connection */
	request_unref(r);   /* held for the call; h2o holds another one */
	h2o_http1_upgrade(req, NULL, 0, fn, arg);
}
