// SPDX-License-Identifier: Apache-2.0
/*
 * Access control. Once an API key was made, every request needs one, except on routes that are
 * `for_anyone`. Until then, everybody who can reach the port is the tenant "local". These are
 * programs of this machine, since the listener must then have a loopback address (unless allow_open
 * = yes).
 *
 * Web pages in a browser on this machine must not be among them. A page could send requests across
 * origins, where the browser adds an Origin header to everything that changes state. Or it could
 * use DNS rebinding, where the page's own host name resolves to this machine and is in the Host
 * header. Both are refused. The one page that may is the service's own (ui.c), whose Origin is the
 * address that the request was sent to. Pages of servers in sandboxes do not have this Origin: see
 * SANDBOXED in port-proxy.c.
 */
#include <strings.h>

#include "base/address.h"
#include "base/elements.h"
#include "orchestrator/config/tiers.h"
#include "orchestrator/http/internal.h"

#define HOST_MAX	 255
#define KEY_REVOKED_TEXT "the API key was revoked"

/* --- hosts ---------------------------------------------------------------------------------- */

/* Returns true for an empty text, or a colon and a number. */
static bool is_port(const char *p, const char *end)
{
	if (p == end)
		return true;
	if (*p++ != ':')
		return false;
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p == end;
}

/* Copies the host of "host", "host:port", "[v6]" or "[v6]:port", without brackets. Returns false
 * when the value has none of these forms or is too long. */
static bool host_of(const char *p, size_t len, char out[static HOST_MAX + 1])
{
	bool bracket = len && *p == '[';
	const char *end = p + len;

	p += bracket;
	const char *stop = memchr(p, bracket ? ']' : ':', (size_t)(end - p));
	if (!stop && !bracket)
		stop = end;
	if (!stop || stop - p > HOST_MAX || !is_port(stop + bracket, end))
		return false;
	memcpy(out, p, (size_t)(stop - p));
	out[stop - p] = '\0';
	return true;
}

bool guard_host_is_ours(const char *host, size_t len, const char *endpoint)
{
	char name[HOST_MAX + 1], own[HOST_MAX + 1];
	const char *scheme = strstr(endpoint, "://");

	if (!host_of(host, len, name))
		return false;
	if (is_address(name) || strcasecmp(name, "localhost") == 0)
		return true;
	if (scheme)
		endpoint = scheme + 3;
	return *endpoint && host_of(endpoint, strcspn(endpoint, "/"), own) &&
	       strcasecmp(name, own) == 0;
}

static bool host_admitted(struct request *r, const char *what, const char *host, size_t len)
{
	if (guard_host_is_ours(host, len, r->config->endpoint))
		return true;
	answer_error(r, 403, "host_refused",
		     "the %s must be an IP address, localhost or the host of the setting "
		     "endpoint, not %.*s",
		     what, len < 100 ? (int)len : 100, host);
	return false;
}

/* --- with keys ------------------------------------------------------------------------------ */

#define SCHEME	   "Bearer"
#define SCHEME_LEN (sizeof(SCHEME) - 1)

bool guard_bearer(const char *value, size_t len, const char **key, size_t *key_len)
{
	size_t at = SCHEME_LEN;

	if (len <= at || strncasecmp(value, SCHEME, at) != 0 || value[at] != ' ')
		return false;
	while (at < len && value[at] == ' ')
		at++;
	while (len > at && value[len - 1] == ' ')
		len--;
	*key = value + at;
	*key_len = len - at;
	return len > at;
}

/* Answers 401. Always returns false. */
static bool unauthorized(struct request *r, const char *code, const char *reason)
{
	answer_header(r, "www-authenticate", SCHEME);
	answer_error(r, 401, code, "%s", reason);
	return false;
}

void guard_identify(struct request *r)
{
	struct exchange *x = exchange(r);
	const struct keys *keys = r->http->keys;
	const h2o_iovec_t *value = keys_any(keys) ? request_header(r, "authorization") : NULL;
	const struct key *key;
	const char *text;
	size_t len;

	if (!value || !guard_bearer(value->base, value->len, &text, &len))
		return;
	x->offers_key = true;
	x->verdict = keys_check(keys, text, len, &key);
	if (x->verdict != KEY_GOOD)
		return;
	r->key = key;
	r->tenant = key->tenant;
}

static bool key_admits(struct request *r)
{
	struct exchange *x = exchange(r);

	if (!x->offers_key)
		return unauthorized(
			r, "key_missing",
			request_header(r, "authorization")
				? "the Authorization header must have the form Bearer KEY: "
				  "no other scheme is supported"
				: "an API key is required: send Authorization: Bearer KEY");
	switch (x->verdict) {
	case KEY_GOOD:
		break;
	case KEY_MALFORMED:
		return unauthorized(r, "key_malformed",
				    "this is not a Ramet API key: a key is rmt_ and 38 letters and "
				    "digits, the last of which are a checksum of the others");
	case KEY_REVOKED:
		return unauthorized(r, "key_revoked", KEY_REVOKED_TEXT);
	default:
		return unauthorized(r, "key_unknown",
				    "this host does not know the API key: check that it is "
				    "complete and was created here");
	}
	if (r->route->for_operators && !tier_is_operators(r->key->tier)) {
		answer_error(r, 403, "operators_only",
			     "this route needs an API key of the tier " TIER_OPERATOR
			     " or " TIER_ADMIN);
		return false;
	}
	if (r->route->for_admins && strcmp(r->key->tier, TIER_ADMIN) != 0) {
		answer_error(r, 403, "admins_only",
			     "this route needs an API key of the tier " TIER_ADMIN);
		return false;
	}
	return true;
}

static void cut_revoked(struct request *r)
{
	if (!r->started)
		answer_header(r, "www-authenticate", SCHEME);
	request_cut(r, 401, "key_revoked", KEY_REVOKED_TEXT);
}

void guard_cut_revoked(struct http *h)
{
	list_each_of_safe (x, struct exchange, link, &h->live) {
		const struct key *key = x->r.key;

		if (!key || x->finished)
			continue;
		if (!key_is_good(key))
			cut_revoked(&x->r);
		else if (x->as_operator && !tier_is_operators(key->tier))
			request_cut(&x->r, 403, "operators_only",
				    "the API key is not of the tier " TIER_OPERATOR
				    " or " TIER_ADMIN " any more");
	}
}

/* --- without keys --------------------------------------------------------------------------- */

/* Returns whether an Origin header names the scheme, host and port that the request was sent to. */
static bool origin_is_own(const h2o_iovec_t *origin, h2o_iovec_t host)
{
	size_t len;
	const char *at = route_authority(origin->base, origin->len, &len);

	return at && at + len == origin->base + origin->len && len == host.len &&
	       strncasecmp(at, host.base, len) == 0;
}

static bool local_admits(struct request *r)
{
	const h2o_iovec_t *origin = request_header(r, "origin");
	h2o_iovec_t host = r->req->input.authority, path = r->req->input.path;
	const char *target;
	size_t len;

	r->tenant = TENANT_LOCAL;
	if (origin && !origin_is_own(origin, host)) {
		answer_error(r, 403, "browser_refused",
			     "requests of other pages than /ui/ (Origin header) are refused while "
			     "the API is open to every program of this machine: create an API key "
			     "first");
		return false;
	}
	if (!host_admitted(r, "Host header", host.base, host.len))
		return false;
	target = route_authority(path.base, path.len, &len);
	if (target && !host_admitted(r, "host of the request target", target, len))
		return false;
	/* Everybody who reaches the port could otherwise lock out all others. */
	if (r->route->for_admins)
		answer_error(r, 403, "admins_only",
			     "there are no keys yet: make the first one on the host with "
			     "`rametctl key create --tier " TIER_ADMIN " --name NAME`");
	return !r->route->for_admins;
}

bool guard_has_keys(const struct request *r)
{
	return keys_any(r->http->keys);
}

bool guard_admits(struct request *r)
{
	return guard_has_keys(r) ? key_admits(r) : local_admits(r);
}

bool guard_is_operator(const struct request *r)
{
	h2o_iovec_t host = r->req->input.authority;

	if (guard_has_keys(r))
		return exchange(r)->as_operator = r->key && tier_is_operators(r->key->tier);
	return exchange(r)->local && !request_header(r, "origin") &&
	       guard_host_is_ours(host.base, host.len, r->config->endpoint);
}
