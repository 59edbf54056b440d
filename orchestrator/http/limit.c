// SPDX-License-Identifier: Apache-2.0
/*
 * Rate limits of clients. Clients without a valid key are counted by address. Clients with a key
 * are counted by tenant, so that strangers behind the same address cannot use up their limit. While
 * there are no keys, programs of this machine are not counted.
 */
#include "base/clock.h"
#include "base/word.h"
#include "orchestrator/http/internal.h"

#define LOG_INTERVAL_MS 60000

void limit_init(struct http *h)
{
	const struct config *config = h->config;

	rate_init(&h->rates[LIMIT_CONNECTIONS], config->client_connections_s);
	rate_init(&h->rates[LIMIT_REQUESTS], config->client_requests_s);
	rate_init(&h->rates[LIMIT_FAILURES], config->client_failures_s);
	rate_init(&h->rates[LIMIT_TENANT], config->tenant_requests_s);
}

/* Returns true at most once a minute for each limit, so that a flood of requests does not flood the
 * log. */
static bool may_log(struct http *h, enum limit limit)
{
	uint64_t now = loop_now_ms(h->loop);

	if (h->limited_logged_ms[limit] && now - h->limited_logged_ms[limit] < LOG_INTERVAL_MS)
		return false;
	h->limited_logged_ms[limit] = now;
	return true;
}

static bool is_exempt(const struct http *h, bool local)
{
	return local && !keys_any(h->keys);
}

bool limit_connection(struct http *h, const struct client *peer, bool local)
{
	struct rate *rate = &h->rates[LIMIT_CONNECTIONS];
	char from[INET6_ADDRSTRLEN];

	if (is_exempt(h, local) || client_is_in(peer, h->config->trusted_proxies) ||
	    !rate_take(rate, client_source(peer), now_ns()))
		return true;
	h->counters.limited[LIMIT_CONNECTIONS]++;
	if (may_log(h, LIMIT_CONNECTIONS)) {
		client_print(from, peer);
		log_warn("%s opens more than %u connections per second: closing the excess", from,
			 rate->per_s);
	}
	return false;
}

/* Takes a token of `who`. Answers 429 and returns false when none is left. */
static bool take(struct request *r, enum limit limit, uint64_t who, const char *what)
{
	struct http *h = r->http;
	struct rate *rate = &h->rates[limit];
	uint64_t wait_ms = rate_take(rate, who, now_ns());
	char from[INET6_ADDRSTRLEN];

	if (!wait_ms)
		return true;
	h->counters.limited[limit]++;
	if (may_log(h, limit)) {
		client_print(from, &r->from);
		log_warn("from %s%s%s: more than %u %s per second; refusing the excess", from,
			 r->tenant ? ", tenant " : "", r->tenant ? r->tenant : "", rate->per_s,
			 what);
	}
	exchange(r)->limited = true;
	answer_retry_after(r, (unsigned)((wait_ms + 999) / 1000));
	answer_error(r, 429, "rate_limited",
		     "more than %u %s per second: try again after the time in Retry-After",
		     rate->per_s, what);
	return false;
}

/* Returns whether the client sent a key or a port's token that is wrong. */
static bool guesses(const struct request *r, enum port_token token)
{
	return token == PORT_TOKEN_NONE ? exchange(r)->offers_key : token == PORT_TOKEN_WRONG;
}

bool limit_request(struct request *r, enum port_token token)
{
	uint64_t source = client_source(&r->from);

	if (r->key)
		/* Clients cannot choose the names of tenants. */
		return take(r, LIMIT_TENANT, word_hash(r->tenant),
			    "requests of this API key's tenant");
	if (is_exempt(r->http, exchange(r)->local))
		return true;
	return take(r, LIMIT_REQUESTS, source, "requests without a valid API key") &&
	       (!guesses(r, token) ||
		take(r, LIMIT_FAILURES, source, "requests with an invalid API key or token"));
}
