// SPDX-License-Identifier: Apache-2.0
/*
 * Decides who may reach a server in a sandbox: its tenant, with the API key (or without, while
 * there are no keys), and whoever has the port's token, or everybody if the port is public.
 *
 * Below /v1/sandboxes/, pages of such a server have the API's origin. A hostile one must not use
 * the API with the browser's help, so they get the header Content-Security-Policy: sandbox, which
 * gives them an origin of their own (port-proxy.c). With sandbox_domain, each server has its own
 * origin.
 */
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "orchestrator/ports/port-proxy.h"

static bool find_target(struct port_target *t, const h2o_req_t *req, const struct config *config)
{
	h2o_iovec_t authority = req->input.authority, path = req->input.path;

	return port_target_find(t, authority.base, authority.len, path.base, path.len,
				config->sandbox_domain, config->region);
}

bool port_is_for(const h2o_req_t *req, const struct config *config)
{
	struct port_target t;

	return find_target(&t, req, config);
}

/* Returns the tenant if the port is public or the token gives access to it; else NULL. */
static const char *try_token(struct request *r, const char *token, size_t len)
{
	struct port_proxy *p = proxy_of(r);

	p->gave_token = p->gave_token || token;
	return service_port_admits(r->service, p->target.id, p->target.port, token, len);
}

static bool header_is(const struct request *r, const char *name, const char *value)
{
	const h2o_iovec_t *header = request_header(r, name);

	return header && h2o_memis(header->base, header->len, value, strlen(value));
}

/* Returns whether the Origin header names this server, or with sandbox_domain any server of its
 * sandbox. */
static bool is_own_origin(const struct request *r, const h2o_iovec_t *origin)
{
	const struct port_target *t = &proxy_of(r)->target;
	const h2o_iovec_t own = r->req->input.authority;
	const char *host = memmem(origin->base, origin->len, "://", 3);
	struct port_target from;

	if (!host)
		return false;
	host += 3;
	size_t len = (size_t)(origin->base + origin->len - host);
	if (!t->by_host)
		return h2o_lcstris(host, len, own.base, own.len);
	return port_target_host(&from, host, len, r->config->sandbox_domain) &&
	       strcmp(from.id, t->id) == 0;
}

/* Returns whether a request may have been made on behalf of the user who got the cookie. Browsers
 * add it to requests of pages of the same site, too, and all servers below sandbox_domain are one
 * site: the page of another sandbox could use this server in the user's name. */
static bool may_use_cookies(const struct request *r)
{
	const h2o_iovec_t *origin = request_header(r, "origin");

	if (origin)
		return is_own_origin(r, origin);
	return !request_header(r, "sec-fetch-site") ||
	       header_is(r, "sec-fetch-site", "same-origin") ||
	       header_is(r, "sec-fetch-site", "none") || header_is(r, "sec-fetch-mode", "navigate");
}

/* Tries all cookies called PORT_COOKIE: a page of another sandbox can set one for all servers below
 * sandbox_domain. */
static const char *try_cookies(struct request *r)
{
	const h2o_headers_t *headers = &r->req->headers;
	const char *tenant = NULL;

	/* HTTP/2 clients may send each cookie in a field of its own. */
	for (size_t i = 0; !tenant && i < headers->size && may_use_cookies(r); i++) {
		const h2o_header_t *h = &headers->entries[i];
		const char *p = h->value.base, *end = p + h->value.len, *token;
		size_t len;

		if (h->name != &H2O_TOKEN_COOKIE->buf)
			continue;
		while (!tenant && (token = port_cookie_token(p, (size_t)(end - p), &len)) != NULL) {
			tenant = try_token(r, token, len);
			p = token + len;
		}
	}
	return tenant;
}

static const char *try_tokens(struct request *r)
{
	const struct port_target *t = &proxy_of(r)->target;
	const h2o_iovec_t *header = request_header(r, PORT_HEADER);
	size_t len;
	const char *query = port_query_token(t->path, t->path_len, &len);
	const char *tenant = try_token(r, NULL, 0);

	if (!tenant && header)
		tenant = try_token(r, header->base, header->len);
	if (!tenant && query)
		tenant = try_token(r, query, len);
	return tenant ? tenant : try_cookies(r);
}

static const struct request_ops ops = {.free = relay_free};

bool port_identify(struct request *r)
{
	struct port_target t;

	if (!find_target(&t, r->req, r->config))
		return false;
	struct port_proxy *p = must_alloc(sizeof(*p));
	r->state = p;
	r->ops = &ops;
	p->target = t;
	memcpy(r->id, t.id, sizeof(r->id));
	r->at_port = t.by_host ? t.port : 0;
	const char *tenant = try_tokens(r);
	if (!tenant)
		return true;
	p->by_share = true;
	snprintf(p->owner, sizeof(p->owner), "%s", tenant);
	r->tenant = p->owner;
	return true;
}

enum port_token port_token(const struct request *r)
{
	const struct port_proxy *p = proxy_of(r);

	if (p->by_share)
		return PORT_TOKEN_GOOD;
	return p->gave_token ? PORT_TOKEN_WRONG : PORT_TOKEN_NONE;
}

bool port_admits(struct request *r)
{
	const struct port_proxy *p = proxy_of(r);
	bool keys = guard_has_keys(r);

	if (p->by_share)
		return true;
	if (p->gave_token && !r->key && (keys || p->target.by_host)) {
		answer_error(r, 401, "token_unknown",
			     "the token does not give access to port %u of this sandbox: it is "
			     "wrong or was revoked",
			     p->target.port);
		return false;
	}
	if (p->target.by_host && !keys) {
		answer_error(r, 401, "token_missing",
			     "port %u of this sandbox is not public: use the url that POST "
			     "/v1/sandboxes/{id}/ports/%u returns, which has a token",
			     p->target.port, p->target.port);
		return false;
	}
	return guard_admits(r);
}
