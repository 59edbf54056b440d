// SPDX-License-Identifier: Apache-2.0
/* Addresses and ranges of them, as text. */
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

struct range {
	int family;	 /* AF_INET or AF_INET6 */
	unsigned prefix; /* bits */
	unsigned char first[sizeof(struct in6_addr)];
};

#define RANGE_TEXT_MAX (INET6_ADDRSTRLEN + sizeof("/128"))

/* Reads "address/prefix", or one address. False for anything else, and where bits are set behind
 * the prefix. */
bool range_parse(struct range *out, const char *text);
/* The same as text. */
void range_print(char out[static RANGE_TEXT_MAX], const struct range *r);

/* Takes the next part of a list that is separated by commas, without the blanks around it: true
 * and moves *list behind it; false when there is no more. A part longer than `out` comes cut to a
 * text that is no range. */
bool range_next(const char **list, char out[static RANGE_TEXT_MAX]);

#endif
