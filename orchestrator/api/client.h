// SPDX-License-Identifier: Apache-2.0
/* The address of a client, and the one that a proxy says it asks for. Knows nothing of h2o. */
#ifndef RAMET_ORCHESTRATOR_API_CLIENT_H
#define RAMET_ORCHESTRATOR_API_CLIENT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* IPv4 as ::ffff:a.b.c.d. */
struct client {
	struct in6_addr ip;
};

/* "::" for what is neither IPv4 nor IPv6. */
struct client client_of(const struct sockaddr *sa);
/* IPv4 in its own notation. */
void client_print(char out[static INET6_ADDRSTRLEN], const struct client *c);
bool client_is_loopback(const struct client *c);
/* Whether it is in one of the ranges, which are as in the setting trusted_proxies. */
bool client_is_in(const struct client *c, const char *ranges);
/* What limits are kept by: an IPv4 address, or the /64 of an IPv6 address. */
uint64_t client_source(const struct client *c);

/*
 * Reads the value of X-Forwarded-For: addresses with commas between, each added by who passed the
 * request on. The last one that is not of `proxies` itself is the client's; *c, which begins as the
 * peer, stays the nearest proxy where the value ends or is none. Returns false when an address is
 * missing or can't be read: the client may have written all that is before it, in earlier headers
 * of this name as well.
 */
bool client_forwarded(struct client *c, const char *value, size_t len, const char *proxies);

#endif
