// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/server.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/api/ports.h"

#define BODY_SLACK  (1u << 20)
#define CLOSE_TURNS 100
#define FEW_OF_ONE  8
#define SHORT_BODY  (16u << 10)

struct api_limits api_limits = {
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
	struct api *a = arg;

	guard_cut_revoked(a);
	port_tunnels_cut(a, false);
	core_port_end_unserved(a->core);
}

/* Runs once a second while requests are in flight. Checks the keys, too, since a grace period may
 * have ended since the last tick. */
static void on_tick(void *arg)
{
	struct api *a = arg;
	uint64_t now = loop_now_ms(a->loop);

	on_revoked(a);
	list_each_safe (pos, &a->live)
		request_tick(container_of(pos, struct request, link), now);
	if (!list_empty(&a->live) || !list_empty(&a->tunnels))
		loop_timer_set(a->loop, &a->tick, api_limits.tick_ms);
}

void api_request_began(struct api *a, struct request *r)
{
	list_add_tail(&a->live, &r->link);
	a->n_live++;
	if (!loop_timer_is_set(&a->tick))
		loop_timer_set(a->loop, &a->tick, api_limits.tick_ms);
}

static void on_drain_limit(void *arg)
{
	struct api *a = arg;
	void (*done)(void *arg) = a->drained;

	a->drained = NULL;
	loop_timer_clear(a->loop, &a->drain_limit);
	if (done)
		done(a->drained_arg);
}

void api_request_ended(struct api *a, struct request *r)
{
	list_del(&r->link);
	a->n_live--;
	if (a->drained && list_empty(&a->live))
		loop_timer_set(a->loop, &a->drain_limit, 0);
}

static void refuse(struct request *r, enum route_result reason, const struct route_match *m)
{
	h2o_iovec_t method = r->req->input.method, path = r->req->input.path;
	int len = path.len < 100 ? (int)path.len : 100;

	switch (reason) {
	case ROUTE_SLASH:
		answer_error(r, 404, "no_such_route",
			     "there is no route %.*s: remove the slash at its end", len, path.base);
		break;
	case ROUTE_REGION:
		answer_error(r, 404, "unknown_region",
			     "%.*s is for another region than this host's: use the endpoint of "
			     "that region",
			     len, path.base);
		break;
	case ROUTE_ID:
		answer_error(r, 404, "not_found",
			     "the path has an invalid sandbox id: an id is sbx_ and 32 hexadecimal "
			     "digits");
		break;
	case ROUTE_PTY:
		answer_error(r, 404, "no_such_pty",
			     "the path has an invalid terminal id: an id is pty_ and 32 "
			     "hexadecimal digits");
		break;
	case ROUTE_PROCESS:
		answer_error(r, 404, "no_such_process",
			     "the path has an invalid process id: an id is prc_ or pty_ and 32 "
			     "hexadecimal digits");
		break;
	case ROUTE_CONTEXT:
		answer_error(r, 404, "no_such_context",
			     "the path has an invalid context id: an id is ctx_ and 32 "
			     "hexadecimal digits");
		break;
	case ROUTE_SPACE:
		answer_error(r, 404, "not_found",
			     "the path has an invalid Space id: an id is spc_ and 32 hexadecimal "
			     "digits");
		break;
	case ROUTE_PORT:
		answer_error(r, 404, "not_found",
			     "the path has an invalid port: ports are numbers from 1 to 65535");
		break;
	case ROUTE_METHOD:
		answer_header(r, "allow", m->allow);
		answer_error(r, 405, "method_not_allowed", "this path does not allow %.*s, only %s",
			     method.len < 20 ? (int)method.len : 20, method.base, m->allow);
		break;
	case ROUTE_MALFORMED:
		answer_error(r, 400, "bad_path",
			     "the path must begin with a slash, and each %% in it must be followed "
			     "by two "
			     "hexadecimal digits other than 00");
		break;
	default:
		answer_error(r, 404, "no_such_route",
			     "there is no route %.*s: see /v1/openapi.json", len, path.base);
	}
}

/* Returns false, with an answer given, when the request's tenant has too many others in flight. */
static bool leaves_room(struct request *r)
{
	const size_t others = r->api->n_live - 1;
	size_t own = 0;

	if (!r->key || fair_share(others, others, api_limits.requests)) /* whoever sent them */
		return true;
	list_each (pos, &r->api->live) {
		const struct request *other = container_of(pos, struct request, link);

		own += other != r && request_same_tenant(r, other);
	}
	if (fair_share(others, own, api_limits.requests))
		return true;
	answer_retry_after(r, 1);
	answer_error(r, 429, "too_many",
		     "%zu requests of this API key's tenant are running: try again in 1 s", own);
	return false;
}

/* Returns false, with an answer given, when too many requests are in flight. Those include answers
 * that nobody reads, so a connection that has more than a few requests is closed. */
static bool has_room(struct request *r)
{
	struct api *a = r->api;

	if (a->n_live <= api_limits.requests)
		return leaves_room(r);
	if (r->conn->requests > FEW_OF_ONE)
		conn_cut(r->conn);
	else if (r->route && r->route->quiet)
		return true;
	answer_retry_after(r, 1);
	answer_error(r, 503, "busy", "%zu requests are running: try again in 1 s", a->n_live - 1);
	return false;
}

/* Like has_room, for the request's body. h2o holds a body as long as the request runs, which a
 * guest may prolong. The limit for all bodies is below h2o's own limit, so that further ones can
 * arrive. */
static bool body_has_room(struct request *r)
{
	size_t held = 0, own = 0;

	if (r->req->entity.len <= SHORT_BODY)
		return true;
	list_each (pos, &r->api->live) {
		const struct request *other = container_of(pos, struct request, link);

		held += other->req->entity.len;
		if (r->key && other != r && request_same_tenant(r, other))
			own += other->req->entity.len;
	}
	if (fair_share(held, own, api_limits.bodies_bytes))
		return true;
	answer_retry_after(r, 1);
	if (held < api_limits.bodies_bytes) {
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

static void dispatch(struct request *r)
{
	struct api *a = r->api;
	h2o_iovec_t method = r->req->input.method, path = r->req->input.path;
	struct route_match m;
	enum route_result found =
		route_find(&m, method.base, method.len, path.base, path.len, a->config->region);

	r->route = m.route;
	memcpy(r->id, m.id[0], sizeof(r->id));
	memcpy(r->other, m.id[1], sizeof(r->other));
	port_identify(r);
	if (r->port) {
		found = ROUTE_FOUND;
		m.route = r->route = route_of_port(method.base, method.len);
	}
	if (!r->tenant)
		guard_identify(r);
	if (!limit_request(r))
		return;
	if (!r->port && ui_is_for(r)) {
		if (has_room(r))
			ui_serve(r);
	} else if (found != ROUTE_FOUND) {
		refuse(r, found, &m);
	} else if (a->draining) {
		answer_retry_after(r, 5);
		answer_error(r, 503, "stopping",
			     "the service is stopping: try again when it has restarted");
	} else if (!m.route->streams && r->req->entity.len > a->config->max_body_bytes) {
		answer_error(r, 413, "body_too_large", "the body has %zu bytes; the maximum is %u",
			     r->req->entity.len, a->config->max_body_bytes);
	} else if ((m.route->for_anyone || (r->port ? port_admits(r) : guard_admits(r))) &&
		   has_room(r) && body_has_room(r) && (!m.route->keyed || keyed_begin(r))) {
		request_ref(r);
		trace_begin(r);
		m.route->serve(r);
		request_began(r);
		request_unref(r);
	}
}

struct handler {
	h2o_handler_t super;
	struct api *api;
};

static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
	dispatch(request_new(((struct handler *)self)->api, req));
	return 0;
}

/* --- answers that h2o gives by itself: JSON like all others --------------------------------- */

struct filter {
	h2o_filter_t super;
	struct api *api;
};

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
static h2o_iovec_t refusal(struct api *a, h2o_req_t *req)
{
	struct text t = {0};
	char sentence[ERR_TEXT_MAX];

	switch (req->res.status) {
	case 413:
		snprintf(sentence, sizeof(sentence),
			 "the body is too large; the maximum is %u bytes",
			 a->config->max_body_bytes);
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
	struct api *a = ((struct filter *)self)->api;

	/* The service's answers have a generator with a `proceed` callback. h2o's own ones are sent
	 * at once, without it. */
	if (req->res.status >= 400 && !req->_generator->proceed) {
		struct rewriter *w = (void *)h2o_add_ostream(req, sizeof(*w), slot);

		w->super.do_send = rewrite;
		w->body = refusal(a, req);
		slot = &w->super.next;
		req->res.content_length = w->body.len;
		h2o_set_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE,
			       H2O_STRLIT("application/json"), 1);
		if (req->res.status == 503)
			h2o_add_header_by_str(&req->pool, &req->res.headers,
					      H2O_STRLIT("retry-after"), 1, NULL, H2O_STRLIT("1"));
		access_log_refused(a, req);
	}
	h2o_setup_next_ostream(req, slot);
}

/* --- life cycle ----------------------------------------------------------------------------- */

static void configure_h2o(struct api *a)
{
	h2o_globalconf_t *g = &a->h2o_config;

	h2o_config_init(g);
	g->server_name = (h2o_iovec_t){NULL, 0};
	/* Reads bodies a little over the limit, so that HTTP/2 clients get an answer: above h2o's
	 * own limit the stream is refused, which clients retry. */
	g->max_request_entity_size = (size_t)a->config->max_body_bytes + BODY_SLACK;
	g->http1.req_timeout = api_limits.read_ms;
	g->http2.idle_timeout = api_limits.read_ms;
	g->should_stream_entity = body_streams;

	h2o_hostconf_t *host =
		h2o_config_register_host(g, h2o_iovec_init(H2O_STRLIT("localhost")), 65535);
	struct filter *f = (void *)h2o_create_filter(&host->fallback_path, sizeof(*f));
	f->super.on_setup_ostream = on_answer;
	f->api = a;
	struct handler *h = (void *)h2o_create_handler(&host->fallback_path, sizeof(*h));
	h->super.on_req = on_request;
	h->api = a;
	h2o_context_init(&a->h2o, loop_h2o(a->loop), g);
	a->accept.ctx = &a->h2o;
	a->accept.hosts = g->hosts;
}

int api_new(struct api **out, struct loop *loop, struct core *core, const struct config *config,
	    struct err *e)
{
	struct api *a = calloc(1, sizeof(*a));

	if (!a)
		return err_set(e, ENOMEM, "set up the API");
	signal(SIGPIPE, SIG_IGN);
	a->loop = loop;
	a->core = core;
	a->config = config;
	a->spans = -1;
	a->counters.requests = calloc(n_routes + 1, sizeof(*a->counters.requests));
	if (!a->counters.requests)
		abort();
	list_init(&a->conns);
	list_init(&a->live);
	list_init(&a->dirty);
	list_init(&a->tunnels);
	list_init(&a->left);
	a->tick = (struct loop_timer){.fn = on_tick, .arg = a};
	a->drain_limit = (struct loop_timer){.fn = on_drain_limit, .arg = a};
	limit_init(a);
	configure_h2o(a);
	loop_before_sleep(loop, api_flush, a);
	int ret = keyed_load(a, e);
	if (ret == 0)
		ret = ui_load(a, e);
	if (ret == 0)
		ret = listen_load_tls(a, e);
	if (ret == 0)
		ret = listen_start(a, e);
	if (ret < 0) {
		api_free(a);
		return ret;
	}
	keys_watch(core_keys(core), on_revoked, a);
	*out = a;
	return 0;
}

void api_trace(struct api *a, int socket)
{
	a->spans = socket;
}

void api_watch(struct api *a, api_watch_fn *fn, void *arg)
{
	a->watch_fn = fn;
	a->watch_arg = arg;
}

unsigned api_port(const struct api *a)
{
	return a->port;
}

void api_drain(struct api *a, void (*done)(void *arg), void *arg)
{
	a->draining = true;
	a->drained = done;
	a->drained_arg = arg;
	listen_stop(a);
	uint64_t limit = list_empty(&a->live) ? 0 : (uint64_t)a->config->stop_timeout_s * 1000;
	loop_timer_set(a->loop, &a->drain_limit, limit);
}

/* Ends the requests in flight, sends GOAWAY on HTTP/2 connections, then cuts all connections and
 * lets h2o notice. Waits for workers that parse bodies, which end soon. */
static void close_conns(struct api *a)
{
	h2o_loop_t *loop = loop_h2o(a->loop);

	list_each_safe (pos, &a->live)
		request_cut(container_of(pos, struct request, link), 503, "stopping",
			    "the service is stopping: try again when it has restarted");
	api_flush(a);
	port_tunnels_cut(a, true);
	h2o_context_request_shutdown(&a->h2o);
	for (int i = 0; i < CLOSE_TURNS && !list_empty(&a->conns); i++) {
		h2o_evloop_run(loop, i ? 10 : 0);
		list_each (pos, &a->conns)
			conn_cut(container_of(pos, struct conn, link));
	}
	while (a->reading_bytes)
		h2o_evloop_run(loop, 10);
}

void api_free(struct api *a)
{
	if (!a)
		return;
	listen_stop(a);
	close_conns(a);
	access_flush(a);
	loop_before_sleep(a->loop, NULL, NULL);
	keys_watch(core_keys(a->core), NULL, NULL);
	keyed_close(a);
	loop_timer_clear(a->loop, &a->tick);
	loop_timer_clear(a->loop, &a->drain_limit);
	SSL_CTX_free(a->accept.ssl_ctx);
	/* h2o cannot be freed while a connection remains; the process ends anyway. */
	if (!list_empty(&a->conns))
		return;
	h2o_timeout_unlink(&a->h2o.http2._graceful_shutdown_timeout);
	h2o_multithread_queue_t *queue = a->h2o.queue;
	h2o_context_dispose(&a->h2o);
	free(queue); /* h2o does not free it */
	h2o_config_dispose(&a->h2o_config);
	free(a->counters.requests);
	ui_free(a);
	free(a);
}
