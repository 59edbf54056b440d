// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/http/server.h"

#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/http/internal.h"

#define BODY_SLACK  (1u << 20)
#define CLOSE_TURNS 100
#define FEW_OF_ONE  8
#define SHORT_BODY  (16u << 10)

struct http_limits http_limits = {
	.read_ms = 120000,
	.write_ms = 300000,
	.body_rate = 1024,
	.silence_ms = 10000,
	.tick_ms = 1000,
	.connections = 4096,
	.requests = 16384,
	.answers_bytes = 256u << 20,
	.bodies_bytes = 384u << 20,
	.read_here_bytes = 1u << 20,
	.reading_bytes = 256u << 20,
};

/* --- requests ------------------------------------------------------------------------------- */

static void on_revoked(void *arg)
{
	struct http *h = arg;

	guard_cut_revoked(h);
	h->ops.revoked(h->api);
}

/* Runs once a second while requests are in flight. Checks the keys, too, since a grace period may
 * have ended since the last tick. */
static void on_tick(void *arg)
{
	struct http *h = arg;
	uint64_t now = loop_now_ms(h->loop);

	on_revoked(h);
	list_each_of_safe (x, struct exchange, link, &h->live)
		request_tick(&x->r, now);
	if (!list_empty(&h->live) || !list_empty(&h->upgraded))
		loop_timer_set(h->loop, &h->tick, http_limits.tick_ms);
}

void http_request_began(struct http *h, struct request *r)
{
	list_add_tail(&h->live, &exchange(r)->link);
	h->counters.live++;
	if (!loop_timer_is_set(&h->tick))
		loop_timer_set(h->loop, &h->tick, http_limits.tick_ms);
}

static void on_drain_limit(void *arg)
{
	struct http *h = arg;
	void (*done)(void *arg) = h->drained;

	h->drained = NULL;
	loop_timer_clear(h->loop, &h->drain_limit);
	if (done)
		done(h->drained_arg);
}

void http_request_ended(struct http *h, struct request *r)
{
	list_del(&exchange(r)->link);
	h->counters.live--;
	if (h->drained && list_empty(&h->live))
		loop_timer_set(h->loop, &h->drain_limit, 0);
}

/* Returns false, with an answer given, when the request's tenant has too many others in flight. */
static bool leaves_room(struct request *r)
{
	const size_t others = r->http->counters.live - 1;
	size_t own = 0;

	/* With few requests in flight there is room, even if all are of this tenant. */
	if (!r->key || fair_share(others, others, http_limits.requests))
		return true;
	list_each_of (x, const struct exchange, link, &r->http->live)
		own += &x->r != r && request_same_tenant(r, &x->r);
	if (fair_share(others, own, http_limits.requests))
		return true;
	answer_retry_after(r, 1);
	answer_error(r, 429, "too_many",
		     "%zu requests of this API key's tenant are running: try again in 1 s", own);
	return false;
}

/* The requests in flight include those whose answers nobody reads, so a connection that has more
 * than a few requests is closed. */
bool request_has_room(struct request *r)
{
	struct exchange *x = exchange(r);
	struct http *h = r->http;

	if (h->counters.live <= http_limits.requests)
		return leaves_room(r);
	if (x->conn->requests > FEW_OF_ONE)
		conn_cut(x->conn);
	else if (r->route && r->route->quiet)
		return true;
	answer_retry_after(r, 1);
	answer_error(r, 503, "busy", "%zu requests are running: try again in 1 s",
		     h->counters.live - 1);
	return false;
}

/* h2o holds a body as long as its request runs, which a guest may prolong. The limit for all bodies
 * is below h2o's own limit, so that further bodies can arrive. */
bool request_body_has_room(struct request *r)
{
	size_t held = 0, own = 0;

	if (r->req->entity.len <= SHORT_BODY)
		return true;
	list_each_of (x, const struct exchange, link, &r->http->live) {
		const size_t len = x->r.req->entity.len;

		held += len;
		own += r->key && &x->r != r && request_same_tenant(r, &x->r) ? len : 0;
	}
	if (fair_share(held, own, http_limits.bodies_bytes))
		return true;
	answer_retry_after(r, 1);
	if (held < http_limits.bodies_bytes) {
		answer_error(
			r, 429, "too_many",
			"the bodies of this tenant's requests in flight have %zu MiB together: "
			"try again in 1 s",
			own >> 20);
		return false;
	}
	answer_error(r, 503, "busy", "running requests have %zu MiB of bodies: try again in 1 s",
		     (held - r->req->entity.len) >> 20);
	return false;
}

static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
	struct http *h = conn_of(req)->http;

	h->ops.serve(request_new(h, req));
	return 0;
}

/* --- answers that h2o gives by itself: JSON like all others --------------------------------- */

struct rewriter {
	h2o_ostream_t super;
	h2o_iovec_t body;
};

static void rewrite(h2o_ostream_t *self, h2o_req_t *req, h2o_iovec_t *bufs, size_t n,
		    h2o_send_state_t state)
{
	struct rewriter *w = (struct rewriter *)self;

	h2o_ostream_send_next(self, req, &w->body, 1, state);
}

/* Makes the JSON body of an answer that h2o gives by itself, in the request's pool. */
static h2o_iovec_t refusal(const struct http *h, h2o_req_t *req)
{
	struct text t = {0};
	char sentence[ERR_TEXT_MAX];

	switch (req->res.status) {
	case 413:
		snprintf(sentence, sizeof(sentence),
			 "the body is too large; the maximum is %u bytes",
			 h->config->max_body_bytes);
		json_error(&t, sentence, "body_too_large");
		break;
	case 503:
		json_error(&t, "too many large bodies are arriving: try again in 1 s", "busy");
		break;
	default:
		snprintf(sentence, sizeof(sentence), "the request is not valid HTTP: %s",
			 req->res.reason);
		json_error(&t, sentence, "bad_request");
	}
	h2o_iovec_t copy = h2o_strdup(&req->pool, t.p, t.len);
	text_free(&t);
	return copy;
}

static void on_answer(h2o_filter_t *self, h2o_req_t *req, h2o_ostream_t **slot)
{
	/* The service's answers have a generator with a `proceed` callback. h2o's own ones are sent
	 * at once, without it. */
	if (req->res.status >= 400 && !req->_generator->proceed) {
		struct http *h = conn_of(req)->http;
		struct rewriter *w = (void *)h2o_add_ostream(req, sizeof(*w), slot);

		w->super.do_send = rewrite;
		w->body = refusal(h, req);
		slot = &w->super.next;
		req->res.content_length = w->body.len;
		h2o_set_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE,
			       H2O_STRLIT("application/json"), 1);
		if (req->res.status == 503)
			h2o_add_header_by_str(&req->pool, &req->res.headers,
					      H2O_STRLIT("retry-after"), 1, NULL, H2O_STRLIT("1"));
		access_log_refused(h, req);
	}
	h2o_setup_next_ostream(req, slot);
}

/* --- life cycle ----------------------------------------------------------------------------- */

static void configure_h2o(struct http *h)
{
	h2o_globalconf_t *g = &h->h2o_config;

	h2o_config_init(g);
	g->server_name = (h2o_iovec_t){NULL, 0};
	/* Reads bodies a little over the limit, so that HTTP/2 clients get an answer: above h2o's
	 * own limit the stream is refused, which clients retry. */
	g->max_request_entity_size = (size_t)h->config->max_body_bytes + BODY_SLACK;
	g->http1.req_timeout = http_limits.read_ms;
	g->http2.idle_timeout = http_limits.read_ms;
	g->should_stream_entity = body_streams;

	h2o_hostconf_t *host =
		h2o_config_register_host(g, h2o_iovec_init(H2O_STRLIT("localhost")), 65535);
	h2o_create_filter(&host->fallback_path, sizeof(h2o_filter_t))->on_setup_ostream = on_answer;
	h2o_create_handler(&host->fallback_path, sizeof(h2o_handler_t))->on_req = on_request;
	h2o_context_init(&h->h2o, loop_h2o(h->loop), g);
	h->accept.ctx = &h->h2o;
	h->accept.hosts = g->hosts;
	h->peer_accept = h->accept;
}

/* Ends the requests in flight, sends GOAWAY on HTTP/2 connections, then cuts all connections and
 * lets h2o notice. Waits for workers that parse bodies, which end soon. */
static void close_conns(struct http *h)
{
	h2o_loop_t *loop = loop_h2o(h->loop);

	list_each_of_safe (x, struct exchange, link, &h->live)
		request_cut(&x->r, 503, "stopping",
			    "the service is stopping: try again when it has restarted");
	http_flush(h);
	h->ops.closing(h->api);
	h2o_context_request_shutdown(&h->h2o);
	for (int i = 0; i < CLOSE_TURNS && !list_empty(&h->conns); i++) {
		h2o_evloop_run(loop, i ? 10 : 0);
		list_each_of (c, struct conn, link, &h->conns)
			conn_cut(c);
	}
	while (h->reading_bytes)
		h2o_evloop_run(loop, 10);
}

struct http *http_new(struct loop *loop, struct service *service, struct keys *keys,
		      const struct config *config, const struct http_ops *ops, struct api *api)
{
	struct http *h = must_alloc(sizeof(*h));

	signal(SIGPIPE, SIG_IGN);
	h->loop = loop;
	h->service = service;
	h->keys = keys;
	h->config = config;
	h->ops = *ops;
	h->api = api;
	h->spans = -1;
	h->counters.requests = must_alloc((ops->n_routes + 1) * sizeof(*h->counters.requests));
	h->tick = (struct loop_timer){.fn = on_tick, .arg = h};
	h->drain_limit = (struct loop_timer){.fn = on_drain_limit, .arg = h};
	limit_init(h);
	configure_h2o(h);
	loop_before_sleep(loop, http_flush, h);
	return h;
}

int http_listen(struct http *h, struct err *e)
{
	int ret = listen_start(h, e);

	if (ret == 0)
		keys_watch(h->keys, on_revoked, h);
	return ret;
}

unsigned http_port(const struct http *h)
{
	return h->port;
}

void http_drain(struct http *h, void (*done)(void *arg), void *arg)
{
	h->draining = true;
	h->drained = done;
	h->drained_arg = arg;
	listen_stop(h);
	uint64_t limit = list_empty(&h->live) ? 0 : (uint64_t)h->config->stop_timeout_s * 1000;
	loop_timer_set(h->loop, &h->drain_limit, limit);
}

void http_trace(struct http *h, int socket)
{
	h->spans = socket;
}

bool http_is_draining(const struct http *h)
{
	return h->draining;
}

struct list *http_upgraded(struct http *h)
{
	return &h->upgraded;
}

bool http_free(struct http *h)
{
	h->draining = true; /* what arrives while connections close is refused */
	listen_stop(h);
	close_conns(h);
	access_flush(h);
	loop_before_sleep(h->loop, NULL, NULL);
	keys_watch(h->keys, NULL, NULL);
	keyed_close(h);
	loop_timer_clear(h->loop, &h->tick);
	loop_timer_clear(h->loop, &h->drain_limit);
	SSL_CTX_free(h->accept.ssl_ctx);
	/* h2o cannot be freed while a connection remains; the process ends anyway. */
	if (!list_empty(&h->conns))
		return false;
	h2o_timeout_unlink(&h->h2o.http2._graceful_shutdown_timeout);
	h2o_multithread_queue_t *queue = h->h2o.queue;
	h2o_context_dispose(&h->h2o);
	free(queue); /* h2o does not free it */
	h2o_config_dispose(&h->h2o_config);
	free(h->counters.requests);
	free(h);
	return true;
}
