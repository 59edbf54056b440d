// SPDX-License-Identifier: Apache-2.0
/* The access log. Its lines are gathered, and written once per turn of the event loop or when the
 * buffer is full. */
#include <stdio.h>

#include "orchestrator/http/internal.h"

void access_flush(struct http *h)
{
	if (!h->log_len)
		return;
	log_write(h->log, h->log_len);
	h->log_len = 0;
}

#define add_line(h, level, ...)                                                                    \
	do {                                                                                       \
		if (sizeof((h)->log) - (h)->log_len < LOG_LINE_MAX)                                \
			access_flush(h);                                                           \
		(h)->log_len +=                                                                    \
			log_render((h)->log + (h)->log_len, LOG_LINE_MAX, level, __VA_ARGS__);     \
	} while (0)

static void count(struct http *h, size_t route, int status, size_t bytes)
{
	h->counters.requests[route][status / 100 % 6]++;
	h->counters.bytes_sent += bytes;
}

h2o_iovec_t access_path(h2o_iovec_t path)
{
	const char *query = memchr(path.base, '?', path.len);
	const char *authority;
	size_t len;

	if (query)
		path.len = (size_t)(query - path.base);
	authority = route_authority(path.base, path.len, &len);
	if (authority) {
		path.len -= (size_t)(authority + len - path.base);
		path.base = (char *)authority + len;
	}
	path.len = path.len < 200 ? path.len : 200;
	return path;
}

/* Prints " from ADDRESS", with the proxy, the tenant and the key if known. */
static void print_client(char *out, size_t size, const struct request *r)
{
	struct exchange *x = exchange(r);
	char from[INET6_ADDRSTRLEN], peer[INET6_ADDRSTRLEN];
	bool proxied = memcmp(&r->from, &x->conn->peer, sizeof(r->from)) != 0;

	client_print(from, &r->from);
	client_print(peer, &x->conn->peer);
	snprintf(out, size, " from %s%s%s%s%s%s%s", from, proxied ? " by " : "",
		 proxied ? peer : "", r->tenant ? " tenant " : "", r->tenant ? r->tenant : "",
		 r->key ? " key " : "", r->key ? r->key->id : "");
}

void access_log_request(struct http *h, const struct request *r)
{
	struct exchange *x = exchange(r);
	uint64_t us = now_us() - r->began_us;
	h2o_iovec_t method = r->req->input.method, path = access_path(r->req->input.path);
	char client[160], server[SANDBOX_ID_LEN + sizeof(":65535")] = "";
	int status = r->started ? x->status : 499; /* the client left before there was an answer */
	bool quiet = x->limited || ((r->quiet || (r->route && r->route->quiet)) && status < 400);
	enum log_level level = quiet ? LOG_DEBUG : LOG_INFO;

	print_client(client, sizeof(client), r);
	/* The path alone does not show which sandbox it is. */
	if (r->at_port)
		snprintf(server, sizeof(server), "%s:%u", r->id, r->at_port);
	count(h, r->route ? (size_t)(r->route - h->ops.routes) : h->ops.n_routes, status, x->bytes);
	if (r->route && r->route->timed && status < 300)
		metrics_time(h, r->route->timed, us);
	add_line(h, level, "%.*s %s%.*s %d %zu bytes %u.%03u ms%s%s%s%s",
		 method.len < 20 ? (int)method.len : 20, method.base, server, (int)path.len,
		 path.base, status, x->bytes, (unsigned)(us / 1000), (unsigned)(us % 1000), client,
		 x->finished || !r->started ? "" : " cut off", r->traceparent[0] ? " trace " : "",
		 r->traceparent);
}

void access_log_refused(struct http *h, h2o_req_t *req)
{
	h2o_iovec_t method = req->input.method, path = access_path(req->input.path);
	char from[INET6_ADDRSTRLEN];

	client_print(from, &conn_of(req)->peer);
	count(h, h->ops.n_routes, req->res.status, req->res.content_length);
	add_line(h, LOG_INFO, "%.*s %.*s %d from %s refused: %s",
		 method.len < 20 ? (int)method.len : 20, method.base, (int)path.len, path.base,
		 req->res.status, from, req->res.reason);
}
