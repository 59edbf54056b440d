// SPDX-License-Identifier: Apache-2.0
#include "base/address.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

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
	const char *prefix = text + len + 1;
	if (text[len] && (strlen(prefix) > 3 || !number_parse(prefix, 0, bits, &out->prefix)))
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
