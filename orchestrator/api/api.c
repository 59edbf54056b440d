// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/api.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/api/placement.h"
#include "orchestrator/api/route.h"
#include "orchestrator/http/dispatch.h"
#include "orchestrator/peers/peers.h"
#include "orchestrator/ports/port-proxy.h"

/* --- requests ------------------------------------------------------------------------------- */

static bool is_serving(struct request *r)
{
	if (!http_is_draining(r->http))
		return true;
	answer_retry_after(r, 5);
	answer_error(r, 503, "stopping",
		     "the service is stopping: try again when it has restarted");
	return false;
}

static void refuse(struct request *r, enum route_result reason, const struct route_match *m)
{
	h2o_iovec_t method = r->req->input.method, path = r->req->input.path;
	int len = path.len < 100 ? (int)path.len : 100;

	switch (reason) {
	case ROUTE_ID:
		answer_error(r, 404, m->invalid->code, "the path has an invalid %s: %s",
			     m->invalid->what, m->invalid->form);
		break;
	case ROUTE_SLASH:
		answer_error(r, 404, "no_such_route",
			     "there is no route %.*s: remove the slash at its end", len, path.base);
		break;
	case ROUTE_REGION:
		refuse_region(r);
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

void route_serve(struct request *r)
{
	if (r->route->body)
		body_read(r, r->route->body, r->route->serve_body);
	else
		r->route->serve(r);
	request_began(r);
}

/* http_ops.capped */
static bool asks_for_more(struct request *r, const struct failure *f)
{
	return r->api->peers && peers_capped(r, f, route_serve);
}

/* Returns whether another host serves requests like this. If so, sets *host, and copies the id that
 * the request is for. `m`: the match of the request's path, valid if the path has a route. */
static bool is_elsewhere(const struct api *a, const h2o_req_t *req, const struct route_match *m,
			 char id[static SANDBOX_ID_LEN + 1], const struct fleet_host **host)
{
	h2o_iovec_t authority = req->input.authority, path = req->input.path;
	struct port_target t;

	if (!a->peers || http_is_from_peer(req))
		return false;
	bool for_port = port_target_find(&t, authority.base, authority.len, path.base, path.len,
					 a->config->sandbox_domain, a->config->region);
	if (!for_port && placement_is_create(m->route)) {
		strcpy(id, "the Idempotency-Key");
		return (*host = peers_key_host(a->peers, req)) != NULL;
	}
	memcpy(id, for_port ? t.id : m->id[0], SANDBOX_ID_LEN + 1);
	return peers_is_elsewhere(a->peers, id, host);
}

/* Serves a request that another host serves. That host checks all of it again, and alone knows who
 * may use a port. */
static void pass_on(struct request *r, const char *id, const struct fleet_host *host)
{
	h2o_iovec_t method = r->req->input.method;
	bool for_port = port_is_for(r->req, r->config);

	if (for_port)
		r->route = route_of_port(method.base, method.len);
	guard_identify(r);
	if (limit_request(r, PORT_TOKEN_NONE) && is_serving(r) && (for_port || guard_admits(r)) &&
	    request_has_room(r)) {
		request_ref(r);
		peers_serve(r->api->peers, r, id, host);
		request_began(r);
		request_unref(r);
	}
}

static void serve(struct request *r)
{
	h2o_iovec_t method = r->req->input.method, path = r->req->input.path;
	const struct fleet_host *host;
	char id[SANDBOX_ID_LEN + 1];
	struct route_match m;
	enum route_result found =
		route_find(&m, method.base, method.len, path.base, path.len, r->config->region);

	if (r->api->peers && http_is_from_peer(r->req) && !http_is_draining(r->http) &&
	    peers_slots_serve(r->api->peers, r))
		return;
	r->route = m.route;
	memcpy(r->id, m.id[0], sizeof(r->id));
	memcpy(r->other, m.id[1], sizeof(r->other));
	if (is_elsewhere(r->api, r->req, &m, id, &host)) {
		pass_on(r, id, host);
		return;
	}
	bool for_port = port_identify(r);
	if (for_port) {
		found = ROUTE_FOUND;
		m.route = r->route = route_of_port(method.base, method.len);
	}
	if (!r->tenant)
		guard_identify(r);
	if (!limit_request(r, for_port ? port_token(r) : PORT_TOKEN_NONE))
		return;
	if (!for_port && ui_is_for(r)) {
		if (request_has_room(r))
			ui_serve(r);
	} else if (found != ROUTE_FOUND) {
		refuse(r, found, &m);
	} else if (!is_serving(r)) {
		return;
	} else if (!m.route->streams && r->req->entity.len > r->config->max_body_bytes) {
		answer_error(r, 413, "body_too_large", "the body has %zu bytes; the maximum is %u",
			     r->req->entity.len, r->config->max_body_bytes);
	} else if ((m.route->for_anyone || (for_port ? port_admits(r) : guard_admits(r))) &&
		   request_has_room(r) && request_body_has_room(r) &&
		   (!m.route->keyed || keyed_begin(r))) {
		request_ref(r);
		trace_begin(r);
		route_serve(r);
		request_unref(r);
	}
}

/* Returns whether the body is streamed: that of a request for a server in a sandbox or for another
 * host, and on some routes. */
static bool streams(const struct api *a, h2o_req_t *req)
{
	h2o_iovec_t method = req->input.method, path = req->input.path;
	const struct fleet_host *host;
	char id[SANDBOX_ID_LEN + 1];
	struct route_match m;

	if (port_is_for(req, a->config))
		return true;
	enum route_result found =
		route_find(&m, method.base, method.len, path.base, path.len, a->config->region);
	return found == ROUTE_FOUND && (m.route->streams || is_elsewhere(a, req, &m, id, &host));
}

/* --- life cycle ----------------------------------------------------------------------------- */

static void revoked(struct api *a)
{
	port_tunnels_cut(a->http, false);
	service_port_end_unserved(a->service);
}

static void closing(struct api *a)
{
	port_tunnels_cut(a->http, true);
}

int api_new(struct api **out, struct loop *loop, struct service *service,
	    const struct config *config, struct err *e)
{
	const struct http_ops ops = {
		.routes = routes,
		.n_routes = n_routes,
		.serve = serve,
		.streams = streams,
		.revoked = revoked,
		.closing = closing,
		.to_peer = placement_add_load,
		.unknown = placement_asks_others,
		.capped = asks_for_more,
	};
	struct api *a = must_alloc(sizeof(*a));

	list_init(&a->lists);
	a->loop = loop;
	a->service = service;
	a->config = config;
	a->http = http_new(loop, service, service_keys(service), config, &ops, a);
	int ret = made_before_load(a, e);
	if (ret == 0)
		ret = ui_load(a, e);
	if (ret == 0)
		ret = http_listen(a->http, e);
	if (ret == 0 && service_member(service))
		ret = peers_new(&a->peers, loop, a->http, service, config, e);
	if (ret < 0) {
		api_free(a);
		return ret;
	}
	*out = a;
	return 0;
}

void api_trace(struct api *a, int socket)
{
	http_trace(a->http, socket);
}

void api_watch(struct api *a, api_watch_fn *fn, void *arg)
{
	a->watch_fn = fn;
	a->watch_arg = arg;
}

unsigned api_port(const struct api *a)
{
	return http_port(a->http);
}

struct peers *api_peers(const struct api *a)
{
	return a->peers;
}

void api_drain(struct api *a, void (*done)(void *arg), void *arg)
{
	service_events_end(a->service); /* their clients go on with another host */
	http_drain(a->http, done, arg);
}

void api_free(struct api *a)
{
	if (!a || !http_free(a->http))
		return;
	peers_free(a->peers);
	ui_free(a);
	free(a);
}
