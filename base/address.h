// SPDX-License-Identifier: Apache-2.0
/* Parses addresses and address ranges. */
#ifndef RAMET_BASE_ADDRESS_H
#define RAMET_BASE_ADDRESS_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <sys/socket.h>

/* True if the text is a numeric IPv4 or IPv6 address and nothing else. */
static inline bool is_address(const char *text)
{
	unsigned char binary[sizeof(struct in6_addr)];

	return inet_pton(AF_INET, text, binary) == 1 || inet_pton(AF_INET6, text, binary) == 1;
}

#define ADDRESS_PORT_MAX (INET6_ADDRSTRLEN + sizeof("[]:65535"))
/*
 * Parses "10.0.0.17:7443" or "[fd00::17]:7443", in numbers. Returns the length of the socket's
 * address; 0 for anything else.
 */
socklen_t address_port_parse(struct sockaddr_storage *out, const char *text);

struct range {
	int family;	 /* AF_INET or AF_INET6 */
	unsigned prefix; /* bits */
	unsigned char first[sizeof(struct in6_addr)];
};

#define RANGE_TEXT_MAX (INET6_ADDRSTRLEN + sizeof("/128"))

/*
 * Parses "address/prefix", or a single address. Returns false for anything else, and when bits
 * after the prefix are set.
 */
bool range_parse(struct range *out, const char *text);

/*
 * Takes the next part of a comma-separated list, without surrounding blanks. Returns true and
 * advances *list, or false at the end. A part longer than `out` is truncated to a text that is not
 * a valid range.
 */
bool range_next(const char **list, char out[static RANGE_TEXT_MAX]);

#endif
