// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/http/client.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/address.h"

static struct client mapped(const void *ipv4)
{
	struct client c = {0};

	memset(c.ip.s6_addr + 10, 0xff, 2);
	memcpy(c.ip.s6_addr + 12, ipv4, 4);
	return c;
}

struct client client_of(const struct sockaddr *sa)
{
	struct client c = {0};

	if (sa->sa_family == AF_INET)
		return mapped(&((const struct sockaddr_in *)sa)->sin_addr);
	if (sa->sa_family == AF_INET6)
		c.ip = ((const struct sockaddr_in6 *)sa)->sin6_addr;
	return c;
}

void client_print(char out[static INET6_ADDRSTRLEN], const struct client *c)
{
	bool ipv4 = IN6_IS_ADDR_V4MAPPED(&c->ip);

	inet_ntop(ipv4 ? AF_INET : AF_INET6, c->ip.s6_addr + (ipv4 ? 12 : 0), out,
		  INET6_ADDRSTRLEN);
}

bool client_is_loopback(const struct client *c)
{
	if (IN6_IS_ADDR_V4MAPPED(&c->ip))
		return c->ip.s6_addr[12] == 127;
	return IN6_IS_ADDR_LOOPBACK(&c->ip);
}

static bool is_in(const struct client *c, const struct range *r)
{
	bool ipv4 = IN6_IS_ADDR_V4MAPPED(&c->ip);
	const unsigned char *ip = c->ip.s6_addr + (ipv4 ? 12 : 0);

	if ((r->family == AF_INET) != ipv4)
		return false;
	for (unsigned i = 0; i < r->prefix; i++)
		if ((ip[i / 8] ^ r->first[i / 8]) & (0x80u >> (i % 8)))
			return false;
	return true;
}

bool client_is_in(const struct client *c, const char *ranges)
{
	char part[RANGE_TEXT_MAX];
	struct range range;

	while (range_next(&ranges, part))
		if (range_parse(&range, part) && is_in(c, &range))
			return true;
	return false;
}

uint64_t client_source(const struct client *c)
{
	uint64_t source = 0;

	/* The first half of a mapped address is zero, so the second half identifies the client. */
	for (int i = 0; i < 8; i++)
		source = source << 8 | c->ip.s6_addr[i + (IN6_IS_ADDR_V4MAPPED(&c->ip) ? 8 : 0)];
	return source;
}

static bool parse(struct client *out, const char *p, size_t len)
{
	char text[INET6_ADDRSTRLEN];
	struct in_addr ipv4;

	if (len >= sizeof(text))
		return false;
	memcpy(text, p, len);
	text[len] = '\0';
	if (inet_pton(AF_INET, text, &ipv4) == 1)
		*out = mapped(&ipv4);
	else if (inet_pton(AF_INET6, text, &out->ip) != 1)
		return false;
	return true;
}

bool client_forwarded(struct client *c, const char *value, size_t len, const char *proxies)
{
	const char *end = value + len;

	while (end > value && client_is_in(c, proxies)) {
		const char *p = end;

		while (p > value && p[-1] != ',')
			p--;
		const char *from = p, *to = end;
		while (from < to && (*from == ' ' || *from == '\t'))
			from++;
		while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
			to--;
		struct client next;
		if (!parse(&next, from, (size_t)(to - from)))
			return false;
		*c = next;
		end = p > value ? p - 1 : value;
	}
	return len > 0;
}
