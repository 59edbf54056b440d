// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/http/route.h"

#include <string.h>

#include "base/fd.h"

bool route_changes(const struct route *route)
{
	return strcmp(route->method, "GET") != 0;
}

const char *route_authority(const char *path, size_t path_len, size_t *len)
{
	static const char *const schemes[] = {"http://", "https://"};

	for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
		size_t skip = strlen(schemes[i]);

		if (path_len <= skip || memcmp(path, schemes[i], skip) != 0)
			continue;
		const char *at = path + skip, *stop = at, *end = path + path_len;
		while (stop < end && *stop != '/' && *stop != '?')
			stop++;
		*len = (size_t)(stop - at);
		return at;
	}
	return NULL;
}
