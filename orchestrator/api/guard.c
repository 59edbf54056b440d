// SPDX-License-Identifier: Apache-2.0
/*
 * Who may ask. While there are no keys, everybody who reaches the port is the tenant "local": the
 * programs of this machine, as the address says. A page in a browser on this machine is none of
 * them, and there are two ways in which one could ask: across origins, where the browser adds an
 * Origin header to everything that does something; and by DNS rebinding, where the page's own host
 * name resolves to this machine and stands in the Host header. Both are refused.
 */
#include <strings.h>

#include "base/address.h"
#include "orchestrator/api/internal.h"

#define HOST_MAX 255

/* Nothing, or a colon and a number. */
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

/* The host of "host", "host:port", "[v6]" or "[v6]:port", without brackets; false: it is none of
 * these, or too long. */
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
	if (guard_host_is_ours(host, len, r->api->config->endpoint))
		return true;
	answer_error(r, 403, "host_refused",
		     "the %s must be an IP address, localhost or the host of the configured "
		     "endpoint, not %.*s",
		     what, len < 100 ? (int)len : 100, host);
	return false;
}

bool guard_admits(struct request *r)
{
	h2o_iovec_t host = r->req->input.authority, path = r->req->input.path;
	const char *target;
	size_t len;

	r->tenant = "local";
	if (!r->api->open)
		return true;
	if (request_header(r, "origin")) {
		answer_error(r, 403, "browser_refused",
			     "requests of web pages (with an Origin header) are not served while "
			     "the API is open to every program of this machine");
		return false;
	}
	if (!host_admitted(r, "Host header", host.base, host.len))
		return false;
	target = route_authority(path.base, path.len, &len);
	return !target || host_admitted(r, "target's host", target, len);
}
