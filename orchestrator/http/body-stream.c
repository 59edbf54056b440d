// SPDX-License-Identifier: Apache-2.0
/*
 * Passes bodies of any size on to a guest as they arrive. A part is taken from the client when the
 * guest has received the one before it, so the slower side sets the pace and a request holds a few
 * parts. If the client leaves, the call is abandoned, and the guest never learns of an end that the
 * body did not have.
 */
#include "orchestrator/guestops/guestops.h"
#include "orchestrator/http/internal.h"

int body_streams(h2o_req_t *req)
{
	const struct http *h = conn_of(req)->http;

	return h->ops.streams(h->api, req);
}

static void take_part(struct request *r)
{
	exchange(r)->body.asked_ms = loop_now_ms(r->loop);
	r->req->entity_stream.proceed(r->req);
}

static void on_part(h2o_req_t *req, h2o_iovec_t part, int is_final)
{
	struct request *r = req->entity_stream.data;
	struct body_stream *b = &exchange(r)->body;
	bool fed = b->left == 0, last;

	b->waited_ms += loop_now_ms(r->loop) - b->asked_ms;
	b->asked_ms = 0;
	b->bytes += part.len;
	if (b->left != AGENT_UNSIZED)
		b->left -= part.len;
	last = is_final || b->left == 0;
	if (r->op && !fed)
		service_file_feed(r->op, part.base, part.len, last);
	/* Over HTTP/2, the end of the body may follow its last byte. */
	if (last && !is_final)
		take_part(r);
}

static void on_wanted(void *arg)
{
	struct request *r = arg;

	if (r->req && r->req->entity_stream.proceed)
		take_part(r);
}

struct file_data body_data(struct request *r)
{
	struct exchange *x = exchange(r);
	h2o_req_t *req = r->req;

	if (!req->entity_stream.proceed)
		return (struct file_data){.p = req->entity.base, .len = req->entity.len};
	req->entity_stream.data = r;
	req->entity_stream.on_data = on_part;
	x->body.left = req->entity_stream.length;
	if (!x->body.left) { /* an HTTP/2 stream that does not end with its headers */
		take_part(r);
		return (struct file_data){0};
	}
	return (struct file_data){.len = x->body.left, .wants = on_wanted};
}

/* A client must send something within read_ms each time, and body_rate on average after the first
 * read_ms. The time that the guest takes does not count. */
void body_tick(struct request *r, uint64_t now_ms)
{
	const struct body_stream *b = &exchange(r)->body;
	uint64_t quiet_ms = b->asked_ms && now_ms > b->asked_ms ? now_ms - b->asked_ms : 0;
	uint64_t most_ms = http_limits.read_ms + b->bytes / http_limits.body_rate * 1000;

	if (!r->op || r->started || !quiet_ms)
		return;
	if (quiet_ms >= http_limits.read_ms || b->waited_ms + quiet_ms >= most_ms)
		request_cut(r, 408, "request_timeout",
			    "the body arrives too slowly: send some of it every 2 minutes, and 1 "
			    "KiB/s on average");
}
