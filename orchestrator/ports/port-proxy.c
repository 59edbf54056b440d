// SPDX-License-Identifier: Apache-2.0
/*
 * Passes requests on to servers in sandboxes, one connection to the server for each request. Bodies
 * are passed on in both directions as they arrive, at most some 64 KiB at a time: the slower side
 * sets the pace.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "orchestrator/ports/port-proxy.h"

#define BODY_PART 65536u

/* Pages without an origin of their own: see port-guard.c. */
#define SANDBOXED "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

void port_proxy_free(struct request *r)
{
	text_free(&proxy_of(r)->head);
	text_free(&proxy_of(r)->in);
}

/* Ends the connection to the server; what the client was not sent yet is sent. */
static void end_answer(struct request *r, bool broken)
{
	stream_end(r, broken);
	request_leave_call(r);
}

/* Fails the request, by an answer if the server's was not begun. */
static void fail(struct request *r, int status, const char *code, const char *reason)
{
	if (r->started)
		end_answer(r, true);
	else
		request_cut(r, status, code, reason);
}

/* --- the request's body --------------------------------------------------------------------- */

static void send_chunk(struct request *r, const void *data, size_t len, bool last)
{
	struct text t = {0};

	if (len) {
		text_printf(&t, "%zx\r\n", len);
		text_add(&t, data, len);
		text_puts(&t, "\r\n");
	}
	if (last)
		text_puts(&t, "0\r\n\r\n");
	if (t.len)
		proxy_of(r)->discards = !service_port_send(r->op, t.p, t.len);
	text_free(&t);
}

static void send_part(struct request *r, const void *data, size_t len, bool last)
{
	struct port_proxy *p = proxy_of(r);

	p->body_over = last;
	request_moved(r);
	if (!r->op || p->discards)
		return;
	if (p->chunked)
		send_chunk(r, data, len, last);
	else if (len)
		p->discards = !service_port_send(r->op, data, len);
}

/* Asks for the next part of the body. If the server takes no more, the rest is read and dropped, so
 * that the client gets the answer. */
static void next_part(struct request *r)
{
	h2o_req_t *req = r->req;

	if (req && req->entity_stream.proceed)
		req->entity_stream.proceed(req);
}

static void on_body(h2o_req_t *req, h2o_iovec_t chunk, int is_final)
{
	struct request *r = req->entity_stream.data;
	bool waits;

	send_part(r, chunk.base, chunk.len, is_final);
	waits = r->op && !proxy_of(r)->discards && (chunk.len || proxy_of(r)->chunked);
	if (!waits && !is_final)
		next_part(r);
}

static void send_body(struct request *r)
{
	struct port_proxy *p = proxy_of(r);
	h2o_iovec_t entity = r->req->entity;

	if (p->body_over)
		return;
	if (r->req->entity_stream.data) {
		next_part(r);
		return;
	}
	size_t part = entity.len - p->body_at;
	bool last = part <= BODY_PART;
	const char *data = entity.base + p->body_at;

	if (!last)
		part = BODY_PART;
	p->body_at += part;
	send_part(r, data, part, last);
}

/* --- the answer's head ---------------------------------------------------------------------- */

static struct port_place place_of(const struct request *r)
{
	const struct port_target *t = &proxy_of(r)->target;

	return (struct port_place){.prefix = t->prefix,
				   .prefix_len = t->prefix_len,
				   .authority = r->req->input.authority.base,
				   .authority_len = r->req->input.authority.len,
				   .port = t->port};
}

static void add_header(struct request *r, const char *name, size_t name_len, const char *value,
		       size_t len)
{
	h2o_mem_pool_t *pool = &r->req->pool;
	h2o_iovec_t n = h2o_strdup(pool, name, name_len), v = h2o_strdup(pool, value, len);

	h2o_add_header_by_str(pool, &r->req->res.headers, n.base, n.len, 1, NULL, v.base, v.len);
}

/* Anything else could add attributes to the cookie: a public port accepts every token. */
static bool is_token(const char *p)
{
	for (size_t i = 0; i < PORT_TOKEN_LEN; i++)
		if (hex_digit(p[i]) < 0)
			return false;
	return true;
}

/* Gives the browser the token that came with the query, for the requests of the page. */
static void add_cookie(struct request *r)
{
	const struct port_target *t = &proxy_of(r)->target;
	bool secure = strcmp(request_scheme(r), "https") == 0;
	size_t len;
	const char *token = port_query_token(t->path, t->path_len, &len);
	struct text value = {0};

	if (!token || !proxy_of(r)->by_share || len != PORT_TOKEN_LEN || !is_token(token))
		return;
	text_puts(&value, PORT_COOKIE "=");
	text_add(&value, token, len);
	text_puts(&value, "; Path=");
	text_add(&value, t->prefix, t->prefix_len);
	text_printf(&value, "/; HttpOnly; SameSite=Lax%s", secure ? "; Secure" : "");
	add_header(r, H2O_STRLIT("set-cookie"), value.p, value.len);
	text_free(&value);
}

static void add_headers(struct request *r)
{
	const struct port_answer *a = &proxy_of(r)->answer;
	const struct port_place place = place_of(r);
	struct text value = {0};

	for (size_t i = 0; i < a->n_fields; i++) {
		if (!port_answer_passes(a, &a->fields[i], &place))
			continue;
		value.len = 0;
		port_answer_value(&value, &a->fields[i], &place);
		add_header(r, a->fields[i].name, a->fields[i].name_len, value.p ? value.p : "",
			   value.len);
	}
	text_free(&value);
	if (place.prefix_len)
		answer_header(r, "content-security-policy", SANDBOXED);
	add_cookie(r);
}

static void begin_answer(struct request *r)
{
	struct port_proxy *p = proxy_of(r);
	const struct port_answer *a = &p->answer;
	h2o_iovec_t reason = h2o_strdup(&r->req->pool, a->reason, a->reason_len);

	add_headers(r);
	p->answering = true;
	/* Without chunks, only the end of the connection ends the body. */
	if (a->body != PORT_EMPTY && a->length == SIZE_MAX && r->req->version < 0x101)
		r->req->http1_is_persistent = 0;
	stream_begin_as(r, a->status, reason.base, a->length);
}

/* Adds bytes of the body to the output. */
static void add_body(struct request *r, const void *data, size_t len)
{
	struct port_answer *a = &proxy_of(r)->answer;
	size_t before = r->out.len;

	text_add(&r->out, data, len);
	ssize_t got = len ? port_answer_body(a, r->out.p + before, len) : 0;
	r->out.len = before + (got > 0 ? (size_t)got : 0);
	if (got < 0) {
		end_answer(r, true);
	} else if (a->over) {
		end_answer(r, false);
	} else {
		stream_touch(r);
		stream_hold(r);
	}
}

/* --- the connection ------------------------------------------------------------------------- */

static void on_connected(void *arg)
{
	struct request *r = arg;

	service_port_send(r->op, proxy_of(r)->head.p, proxy_of(r)->head.len);
	text_free(&proxy_of(r)->head);
}

static void on_sent(void *arg)
{
	struct request *r = arg;

	if (r->req && r->op && !request_is_finished(r))
		send_body(r);
}

static void on_upgraded(struct request *r, size_t head_len)
{
	struct port_proxy *p = proxy_of(r);

	p->answering = true;
	add_headers(r);
	port_tunnel_begin(r, p->in.p + head_len, p->in.len - head_len);
}

/* Reads the head of the answer. Answers like 100 Continue before it are dropped. */
static void read_head(struct request *r, const uint8_t *data, size_t len)
{
	struct port_proxy *p = proxy_of(r);
	size_t checked = p->in.len, at = 0;
	char sentence[160];
	const char *why;

	text_add(&p->in, data, len);
	for (;;) {
		ssize_t took = port_answer_head(&p->answer, p->in.p + at, p->in.len - at, checked,
						p->is_head, &why);
		if (took == 0) {
			p->in.len -= at;
			memmove(p->in.p, p->in.p + at, p->in.len);
			return;
		}
		if (took > 0 && p->answer.status < 200 && p->answer.status != 101 &&
		    (p->interim += (size_t)took) > PORT_HEAD_MAX) {
			why = "has more than 64 KiB of heads before it";
			took = -EPROTO;
		}
		bool upgraded = took > 0 && p->answer.status == 101 && p->upgrades;
		if (took < 0 || (p->answer.status == 101 && !upgraded)) {
			snprintf(sentence, sizeof(sentence),
				 "the answer of the server on port %u in the sandbox %s",
				 p->target.port, took < 0 ? why : "changes the protocol unasked");
			fail(r, 502, "port_answer", sentence);
			return;
		}
		if (upgraded) {
			on_upgraded(r, at + (size_t)took);
			return;
		}
		if (p->answer.status >= 200) {
			begin_answer(r);
			at += (size_t)took;
			add_body(r, p->in.p + at, p->in.len - at);
			text_free(&p->in);
			return;
		}
		at += (size_t)took;
		checked = 0;
	}
}

static void on_data(void *arg, const uint8_t *data, size_t len)
{
	struct request *r = arg;

	if (!r->req || r->ended)
		return;
	request_moved(r);
	if (proxy_of(r)->answering)
		add_body(r, data, len);
	else
		read_head(r, data, len);
}

static void on_eof(void *arg)
{
	struct request *r = arg;
	char sentence[120];

	if (!r->req || r->ended)
		return;
	snprintf(sentence, sizeof(sentence),
		 "the server on port %u in the sandbox closed the connection without an answer",
		 proxy_of(r)->target.port);
	if (proxy_of(r)->answering)
		end_answer(r, !port_answer_ended(&proxy_of(r)->answer));
	else
		fail(r, 502, "port_answer", sentence);
}

static void on_ended(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called(r) || r->ended)
		return;
	if (r->started || !f)
		stream_end(r, true);
	else
		answer_failure(r, f);
}

static const struct port_sink sink = {on_connected, on_data, on_eof, on_sent, on_ended};

/* --- start ---------------------------------------------------------------------------------- */

static void list_fields(const struct request *r, struct port_field *out)
{
	const h2o_headers_t *headers = &r->req->headers;

	for (size_t i = 0; i < headers->size; i++) {
		const h2o_header_t *h = &headers->entries[i];

		out[i] = (struct port_field){h->name->base, h->value.base, h->name->len,
					     h->value.len};
	}
}

/* Returns whether the client asks for another protocol than h2c, which the service itself speaks. A
 * request with a body does not count: its rest would reach the server as bytes of that protocol. */
static bool wants_upgrade(const struct request *r)
{
	h2o_iovec_t to = r->req->upgrade;

	return r->req->version == 0x101 && to.len && !r->req->entity_stream.proceed &&
	       !r->req->entity.len && !h2o_lcstris(to.base, to.len, H2O_STRLIT("h2c"));
}

static void choose_body(struct request *r, struct port_ask *ask)
{
	h2o_req_t *req = r->req;

	if (req->entity_stream.proceed) {
		ask->body_len = req->entity_stream.length;
		ask->body = ask->body_len == SIZE_MAX ? PORT_BODY_CHUNKED : PORT_BODY_LENGTH;
		req->entity_stream.data = r;
		req->entity_stream.on_data = on_body;
	} else if (req->entity.base) {
		ask->body_len = req->entity.len;
		ask->body = PORT_BODY_LENGTH;
	}
	proxy_of(r)->chunked = ask->body == PORT_BODY_CHUNKED;
	proxy_of(r)->body_over = ask->body == PORT_NO_BODY;
}

static bool write_head(struct request *r)
{
	struct port_proxy *p = proxy_of(r);
	const struct port_target *t = &p->target;
	h2o_mem_pool_t *pool = &r->req->pool;
	struct port_field *fields =
		h2o_mem_alloc_pool(pool, (r->req->headers.size + 1) * sizeof(*fields));
	char *path = h2o_mem_alloc_pool(pool, t->path_len + 1);
	char client[INET6_ADDRSTRLEN];
	struct port_ask ask = {
		.method = r->req->input.method.base,
		.method_len = r->req->input.method.len,
		.path = path,
		.path_len = port_query_strip(path, t->path, t->path_len),
		.fields = fields,
		.n_fields = r->req->headers.size,
		.authority = r->req->input.authority.base,
		.authority_len = r->req->input.authority.len,
		.prefix = t->prefix,
		.prefix_len = t->prefix_len,
		.client = client,
		.scheme = request_scheme(r),
		.port = t->port,
		.key_used = r->key,
	};

	client_print(client, &r->from);
	list_fields(r, fields);
	p->is_head = request_is_head(r);
	choose_body(r, &ask);
	p->upgrades = wants_upgrade(r);
	if (p->upgrades) {
		ask.upgrade = r->req->upgrade.base;
		ask.upgrade_len = r->req->upgrade.len;
	}
	return port_ask_write(&p->head, &ask);
}

/* Returns whether a browser opens a page with the token in its address. It is sent to the same
 * address without the token, which would otherwise stay in the browser's history. */
static bool redirects(struct request *r)
{
	const struct port_target *t = &proxy_of(r)->target;
	const h2o_iovec_t *mode = request_header(r, "sec-fetch-mode");
	size_t len;

	return proxy_of(r)->by_share && mode &&
	       h2o_memis(mode->base, mode->len, H2O_STRLIT("navigate")) &&
	       h2o_memis(r->req->input.method.base, r->req->input.method.len, H2O_STRLIT("GET")) &&
	       port_query_token(t->path, t->path_len, &len);
}

static void redirect(struct request *r)
{
	const struct port_target *t = &proxy_of(r)->target;
	size_t len = t->prefix_len + t->path_len;
	char *to = h2o_mem_alloc_pool(&r->req->pool, len + 1);

	memcpy(to, t->prefix, t->prefix_len);
	len = t->prefix_len + port_query_strip(to + t->prefix_len, t->path, t->path_len);
	add_cookie(r);
	answer_header(r, "cache-control", "no-store");
	add_header(r, H2O_STRLIT("location"), to, len);
	answer_status(r, 303);
}

void serve_port_proxy(struct request *r)
{
	const struct port_target *t = &proxy_of(r)->target;
	const uint64_t visitor = client_source(&r->from);

	if (!write_head(r)) {
		answer_error(r, 400, "bad_path", "the method or path can't be passed on");
		return;
	}
	/* In Location, browsers read a path like //host/ or /\host/ as another host's. */
	bool elsewhere = t->by_host && t->path_len > 1 && strchr("/\\", t->path[1]);
	if (redirects(r) && !elsewhere) {
		redirect(r);
		return;
	}
	request_ref(r);
	r->op = service_port_connect(r->service, r->tenant, t->id, t->port,
				     proxy_of(r)->by_share ? &visitor : NULL, &sink, r);
}

/* --- tunnels for other protocols ------------------------------------------------------------ */

static void on_tcp_connected(void *arg)
{
	port_tunnel_begin(arg, NULL, 0);
}

static void on_tcp_ended(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (request_called(r) && !r->started && f)
		answer_failure(r, f);
}

static const struct port_sink tcp_sink = {.connected = on_tcp_connected, .ended = on_tcp_ended};

/* Answers a request that does not ask for the protocol tcp. */
static void ask_for_upgrade(struct request *r)
{
	struct sandbox_view view;
	struct failure f;

	if (!service_view(r->service, r->tenant, r->id, &view, &f)) {
		answer_failure(r, &f);
		return;
	}
	answer_header(r, "upgrade", "tcp");
	answer_error(r, 426, "upgrade_required",
		     "this route connects to a TCP port: send the request over HTTP/1.1 with the "
		     "headers Connection: Upgrade and Upgrade: tcp");
}

void serve_port_tcp(struct request *r)
{
	h2o_iovec_t to = r->req->upgrade;
	uint16_t port = port_number(r->other, strlen(r->other));

	if (r->req->version != 0x101 || !h2o_lcstris(to.base, to.len, H2O_STRLIT("tcp"))) {
		ask_for_upgrade(r);
		return;
	}
	request_ref(r);
	r->op = service_port_connect(r->service, r->tenant, r->id, port, NULL, &tcp_sink, r);
}
