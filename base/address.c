// SPDX-License-Identifier: Apache-2.0
#include "base/address.h"

#include <stdio.h>
#include <string.h>

static bool prefix_parse(unsigned *out, const char *text, unsigned most)
{
	unsigned n = 0;

	if (!*text || strlen(text) > 3)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		n = n * 10 + (unsigned)(*text - '0');
	}
	*out = n;
	return n <= most;
}

static bool is_clear_behind(const unsigned char *bytes, unsigned prefix, unsigned bits)
{
	for (unsigned i = prefix; i < bits; i++)
		if (bytes[i / 8] & (0x80u >> (i % 8)))
			return false;
	return true;
}

bool range_parse(struct range *out, const char *text)
{
	char address[INET6_ADDRSTRLEN];
	size_t len = strcspn(text, "/");

	if (len >= sizeof(address))
		return false;
	memcpy(address, text, len);
	address[len] = '\0';
	*out = (struct range){.family = strchr(address, ':') ? AF_INET6 : AF_INET};
	unsigned bits = out->family == AF_INET6 ? 128 : 32;
	if (inet_pton(out->family, address, out->first) != 1)
		return false;
	out->prefix = bits;
	if (text[len] && !prefix_parse(&out->prefix, text + len + 1, bits))
		return false;
	return is_clear_behind(out->first, out->prefix, bits);
}

bool range_next(const char **list, char out[static RANGE_TEXT_MAX])
{
	const char *p = *list + strspn(*list, " ,");
	size_t len = strcspn(p, ",");

	if (!*p)
		return false;
	*list = p + len;
	while (len > 0 && p[len - 1] == ' ')
		len--;
	snprintf(out, RANGE_TEXT_MAX, "%.*s", (int)(len < RANGE_TEXT_MAX ? len : RANGE_TEXT_MAX),
		 p);
	return true;
}
