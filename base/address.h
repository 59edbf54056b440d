// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_BASE_ADDRESS_H
#define RAMET_BASE_ADDRESS_H

#include <arpa/inet.h>
#include <stdbool.h>

/* Whether the text is an IPv4 or IPv6 address in numbers, and nothing else. */
static inline bool is_address(const char *text)
{
	unsigned char binary[sizeof(struct in6_addr)];

	return inet_pton(AF_INET, text, binary) == 1 || inet_pton(AF_INET6, text, binary) == 1;
}

#endif
