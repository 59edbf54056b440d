// SPDX-License-Identifier: Apache-2.0
/* Passes requests on to servers in sandboxes, one connection to the server for each request. */
#include <string.h>

#include "base/num.h"
#include "orchestrator/ports/port-proxy.h"

/* Pages without an origin of their own: see port-guard.c. */
#define SANDBOXED "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

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

/* Gives the browser the token that came with the query, for the requests of the page. */
static void add_cookie(struct request *r)
{
	const struct port_target *t = &proxy_of(r)->target;
	bool secure = strcmp(request_scheme(r), "https") == 0;
	size_t len;
	const char *token = port_query_token(t->path, t->path_len, &len);
	struct text value = {0};

	/* Anything else could add attributes to the cookie: a public port accepts every token. */
	if (!token || !proxy_of(r)->by_share || len != PORT_TOKEN_LEN || !port_is_token(token))
		return;
	text_puts(&value, PORT_COOKIE "=");
	text_add(&value, token, len);
	text_puts(&value, "; Path=");
	text_add(&value, t->prefix, t->prefix_len);
	text_printf(&value, "/; HttpOnly; SameSite=Lax%s", secure ? "; Secure" : "");
	relay_header(r, H2O_STRLIT("set-cookie"), value.p, value.len);
	text_free(&value);
}

static void add_headers(struct request *r)
{
	const struct port_answer *a = &relay_of(r)->answer;
	const struct port_place place = place_of(r);
	struct text value = {0};

	for (size_t i = 0; i < a->n_fields; i++) {
		if (!port_answer_passes(a, &a->fields[i], &place))
			continue;
		value.len = 0;
		port_answer_value(&value, &a->fields[i], &place);
		relay_header(r, a->fields[i].name, a->fields[i].name_len, value.p ? value.p : "",
			     value.len);
	}
	text_free(&value);
	if (place.prefix_len)
		answer_header(r, "content-security-policy", SANDBOXED);
	add_cookie(r);
}

/* --- start ---------------------------------------------------------------------------------- */

static void complain(const struct request *r, const char *why, struct failure *f)
{
	const unsigned port = proxy_of(r)->target.port;

	if (why)
		failure_set(f, FAIL_PORT_ANSWER, 0,
			    "the answer of the server on port %u in the sandbox %s", port, why);
	else
		failure_set(f, FAIL_PORT_ANSWER, 0,
			    "the server on port %u in the sandbox closed the connection without an "
			    "answer",
			    port);
}

static const struct relay_link port_link = {
	.send = service_port_send,
	.end = service_port_end,
	.redirect = service_port_redirect,
	.add_headers = add_headers,
	.complain = complain,
};

static bool write_head(struct request *r)
{
	const struct port_target *t = &proxy_of(r)->target;
	char *path = h2o_mem_alloc_pool(&r->req->pool, t->path_len + 1);
	char client[INET6_ADDRSTRLEN];
	struct port_ask ask = {
		.path = path,
		.path_len = port_query_strip(path, t->path, t->path_len),
		.prefix = t->prefix,
		.prefix_len = t->prefix_len,
		.client = client,
		.port = t->port,
		.key_used = r->key,
	};

	client_print(client, &r->from);
	relay_of(r)->link = &port_link;
	relay_ask(r, &ask);
	return port_ask_write(&relay_of(r)->head, &ask);
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
	relay_header(r, H2O_STRLIT("location"), to, len);
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
				     proxy_of(r)->by_share ? &visitor : NULL, &relay_sink, r);
}

/* --- tunnels for other protocols ------------------------------------------------------------ */

static void on_tcp_connected(void *arg)
{
	port_tunnel_begin(arg, &port_link, NULL, 0);
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
