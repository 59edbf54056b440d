// SPDX-License-Identifier: Apache-2.0
#include "base/address.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

socklen_t address_port_parse(struct sockaddr_storage *out, const char *text)
{
	struct sockaddr_in *v4 = (void *)out;
	struct sockaddr_in6 *v6 = (void *)out;
	char address[INET6_ADDRSTRLEN];
	const char *colon = strrchr(text, ':');
	bool brackets = text[0] == '[';
	uint32_t port;

	memset(out, 0, sizeof(*out));
	if (!colon || !number_parse(colon + 1, 1, UINT16_MAX, &port) ||
	    (brackets && colon[-1] != ']'))
		return 0;
	size_t len = (size_t)(colon - text) - 2 * brackets;
	if (len >= sizeof(address))
		return 0;
	memcpy(address, text + brackets, len);
	address[len] = '\0';
	if (!brackets && inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		return sizeof(*v4);
	}
	if (!brackets || inet_pton(AF_INET6, address, &v6->sin6_addr) != 1)
		return 0;
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	return sizeof(*v6);
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
