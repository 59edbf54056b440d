// SPDX-License-Identifier: Apache-2.0
/* The address of a client, and the client address that a proxy reports. Independent of h2o. */
#ifndef RAMET_ORCHESTRATOR_HTTP_CLIENT_H
#define RAMET_ORCHESTRATOR_HTTP_CLIENT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* IPv4 addresses are stored as ::ffff:a.b.c.d. */
struct client {
	struct in6_addr ip;
};

/* Returns "::" for an address that is neither IPv4 nor IPv6. */
struct client client_of(const struct sockaddr *sa);
/* Prints IPv4 addresses in dotted notation. */
void client_print(char out[static INET6_ADDRSTRLEN], const struct client *c);
bool client_is_loopback(const struct client *c);
/* Returns true when the address is in one of the ranges, in the syntax of the setting
 * trusted_proxies. */
bool client_is_in(const struct client *c, const char *ranges);
/* Returns the number that identifies the client to rate limits: from an IPv4 address, or the /64 of
 * an IPv6 address. */
uint64_t client_source(const struct client *c);

/*
 * Reads the value of X-Forwarded-For: comma-separated addresses, each appended by the host that
 * forwarded the request. *c starts as the peer. As long as *c is one of `proxies`, it is replaced
 * by the next address from the end of the value. So it becomes the client's address, or the first
 * one of the value if all are proxies. Returns false when an address is missing or invalid. Earlier
 * headers of this name must then be ignored, since the client may have written them.
 */
bool client_forwarded(struct client *c, const char *value, size_t len, const char *proxies);

#endif
