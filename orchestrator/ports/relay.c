// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/ports/relay.h"

#include <errno.h>
#include <string.h>

#define BODY_PART 65536u

void relay_free(struct request *r)
{
	struct relay *p = relay_of(r);

	text_free(&p->head);
	text_free(&p->in);
}

/* Ends the connection to the server. Output that the client has not got yet is still sent. */
static void end_answer(struct request *r, bool broken)
{
	const struct relay *p = relay_of(r);
	bool whole = !broken && p->answer.over && p->body_over && !p->discards;

	stream_end(r, broken);
	if (whole && p->answer.keeps && !p->answer.extra && p->link->keep && r->op)
		p->link->keep(r->op);
	request_leave_call(r);
}

/* Fails the request because the server's answer is of no use. */
static void fail(struct request *r, const char *why)
{
	struct failure f;

	relay_of(r)->link->complain(r, why, &f);
	if (r->started)
		end_answer(r, true);
	else
		request_fail(r, &f);
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
		relay_of(r)->discards = !relay_of(r)->link->send(r->op, t.p, t.len);
	text_free(&t);
}

static void send_part(struct request *r, const void *data, size_t len, bool last)
{
	struct relay *p = relay_of(r);

	p->body_over = last;
	request_moved(r);
	if (!r->op || p->discards)
		return;
	if (p->chunked)
		send_chunk(r, data, len, last);
	else if (len)
		p->discards = !relay_of(r)->link->send(r->op, data, len);
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
	waits = r->op && !relay_of(r)->discards && (chunk.len || relay_of(r)->chunked);
	if (!waits && !is_final)
		next_part(r);
}

static void send_body(struct request *r)
{
	struct relay *p = relay_of(r);
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

static void begin_answer(struct request *r)
{
	struct relay *p = relay_of(r);
	const struct port_answer *a = &p->answer;
	h2o_iovec_t reason = h2o_strdup(&r->req->pool, a->reason, a->reason_len);

	p->link->add_headers(r);
	p->answering = true;
	/* Without chunks, only the end of the connection ends the body. */
	if (a->body != PORT_EMPTY && a->length == SIZE_MAX && r->req->version < 0x101)
		r->req->http1_is_persistent = 0;
	stream_begin_as(r, a->status, reason.base, a->length);
}

/* Adds bytes of the body to the output. */
static void add_body(struct request *r, const void *data, size_t len)
{
	struct port_answer *a = &relay_of(r)->answer;
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

	relay_of(r)->link->send(r->op, relay_of(r)->head.p, relay_of(r)->head.len);
	text_free(&relay_of(r)->head);
}

static void on_sent(void *arg)
{
	struct request *r = arg;

	if (r->req && r->op && !request_is_finished(r))
		send_body(r);
}

static void on_upgraded(struct request *r, size_t head_len)
{
	struct relay *p = relay_of(r);

	p->answering = true;
	p->link->add_headers(r);
	port_tunnel_begin(r, p->link, p->in.p + head_len, p->in.len - head_len);
}

/* Reads the head of the answer. Answers like 100 Continue before it are dropped. */
static void read_head(struct request *r, const uint8_t *data, size_t len)
{
	struct relay *p = relay_of(r);
	size_t checked = p->in.len, at = 0;
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
			fail(r, took < 0 ? why : "changes the protocol unasked");
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
	if (relay_of(r)->answering)
		add_body(r, data, len);
	else
		read_head(r, data, len);
}

static void on_eof(void *arg)
{
	struct request *r = arg;

	if (!r->req || r->ended)
		return;
	if (relay_of(r)->answering)
		end_answer(r, !port_answer_ended(&relay_of(r)->answer));
	else
		fail(r, NULL);
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

const struct port_sink relay_sink = {on_connected, on_data, on_eof, on_sent, on_ended};

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
	relay_of(r)->chunked = ask->body == PORT_BODY_CHUNKED;
	relay_of(r)->body_over = ask->body == PORT_NO_BODY;
}

void relay_ask_head(struct request *r, struct port_ask *ask)
{
	size_t n = r->req->headers.size;
	struct port_field *fields = h2o_mem_alloc_pool(&r->req->pool, (n + 1) * sizeof(*fields));

	list_fields(r, fields);
	ask->method = r->req->input.method.base;
	ask->method_len = r->req->input.method.len;
	ask->fields = fields;
	ask->n_fields = n;
	ask->authority = r->req->input.authority.base;
	ask->authority_len = r->req->input.authority.len;
	ask->scheme = request_scheme(r);
}

void relay_ask(struct request *r, struct port_ask *ask)
{
	struct relay *p = relay_of(r);

	relay_ask_head(r, ask);
	p->is_head = request_is_head(r);
	choose_body(r, ask);
	p->upgrades = wants_upgrade(r);
	if (p->upgrades) {
		ask->upgrade = r->req->upgrade.base;
		ask->upgrade_len = r->req->upgrade.len;
	}
}

void relay_header(struct request *r, const char *name, size_t name_len, const char *value,
		  size_t len)
{
	h2o_mem_pool_t *pool = &r->req->pool;
	h2o_iovec_t n = h2o_strdup(pool, name, name_len), v = h2o_strdup(pool, value, len);

	h2o_add_header_by_str(pool, &r->req->res.headers, n.base, n.len, 1, NULL, v.base, v.len);
}
