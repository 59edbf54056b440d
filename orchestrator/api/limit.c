// SPDX-License-Identifier: Apache-2.0
/*
 * Rate limits of clients. Clients without a valid key are counted by address. Clients with a key
 * are counted by tenant, so that strangers behind the same address cannot use up their limit. While
 * there are no keys, programs of this machine are not counted.
 */
#include "base/clock.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/api/ports.h"

#define LOG_INTERVAL_MS 60000

void limit_init(struct api *a)
{
	const struct config *config = a->config;

	rate_init(&a->rates[LIMIT_CONNECTIONS], config->client_connections_s);
	rate_init(&a->rates[LIMIT_REQUESTS], config->client_requests_s);
	rate_init(&a->rates[LIMIT_FAILURES], config->client_failures_s);
	rate_init(&a->rates[LIMIT_TENANT], config->tenant_requests_s);
}

/* Returns true at most once a minute for each limit, so that a flood of requests does not flood the
 * log. */
static bool may_log(struct api *a, enum limit limit)
{
	uint64_t now = loop_now_ms(a->loop);

	if (a->limited_logged_ms[limit] && now - a->limited_logged_ms[limit] < LOG_INTERVAL_MS)
		return false;
	a->limited_logged_ms[limit] = now;
	return true;
}

static bool is_exempt(const struct api *a, bool local)
{
	return local && !keys_any(core_keys(a->core));
}

bool limit_connection(struct api *a, const struct client *peer, bool local)
{
	struct rate *rate = &a->rates[LIMIT_CONNECTIONS];
	char from[INET6_ADDRSTRLEN];

	if (is_exempt(a, local) || client_is_in(peer, a->config->trusted_proxies) ||
	    !rate_take(rate, client_source(peer), now_ns()))
		return true;
	a->counters.limited[LIMIT_CONNECTIONS]++;
	if (may_log(a, LIMIT_CONNECTIONS)) {
		client_print(from, peer);
		log_warn("%s opens more than %u connections per second: closing the excess", from,
			 rate->per_s);
	}
	return false;
}

/* Takes a token of `who`. Answers 429 and returns false when none is left. */
static bool take(struct request *r, enum limit limit, uint64_t who, const char *what)
{
	struct api *a = r->api;
	struct rate *rate = &a->rates[limit];
	uint64_t wait_ms = rate_take(rate, who, now_ns());
	char from[INET6_ADDRSTRLEN];

	if (!wait_ms)
		return true;
	a->counters.limited[limit]++;
	if (may_log(a, limit)) {
		client_print(from, &r->from);
		log_warn("from %s%s%s: more than %u %s per second; refusing the excess", from,
			 r->tenant ? ", tenant " : "", r->tenant ? r->tenant : "", rate->per_s,
			 what);
	}
	r->limited = true;
	answer_retry_after(r, (unsigned)((wait_ms + 999) / 1000));
	answer_error(r, 429, "rate_limited",
		     "more than %u %s per second: try again after the time in Retry-After",
		     rate->per_s, what);
	return false;
}

/* FNV-1a is enough: clients cannot choose the names of tenants. */
static uint64_t tenant_number(const char *tenant)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (; *tenant; tenant++)
		hash = (hash ^ (unsigned char)*tenant) * 0x100000001b3u;
	return hash;
}

/* Returns whether the client sent a key or a port's token that is wrong. */
static bool guesses(const struct request *r)
{
	if (r->port && (r->port->by_share || r->port->gave_token))
		return !r->port->by_share;
	return r->offers_key;
}

bool limit_request(struct request *r)
{
	uint64_t source = client_source(&r->from);

	if (r->key)
		return take(r, LIMIT_TENANT, tenant_number(r->tenant),
			    "requests of this API key's tenant");
	if (is_exempt(r->api, r->local))
		return true;
	return take(r, LIMIT_REQUESTS, source, "requests without a valid API key") &&
	       (!guesses(r) ||
		take(r, LIMIT_FAILURES, source, "requests with an invalid API key or token"));
}
