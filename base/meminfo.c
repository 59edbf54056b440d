// SPDX-License-Identifier: Apache-2.0
#include "base/meminfo.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text-file.h"

static bool find(const char *text, const char *name, uint64_t *bytes)
{
	const char *at = strstr(text, name);
	uint64_t kib;

	if (!at || sscanf(at + strlen(name), " %" SCNu64, &kib) != 1)
		return false;
	*bytes = kib << 10;
	return true;
}

bool meminfo_read(const char *path, struct meminfo *out)
{
	char text[1024]; /* both values are in the first three lines */
	struct meminfo found;

	*out = (struct meminfo){0};
	if (text_file_read(AT_FDCWD, path, text, sizeof(text)) < 0 ||
	    !find(text, "MemTotal:", &found.total) ||
	    !find(text, "MemAvailable:", &found.available))
		return false;
	*out = found;
	return true;
}

bool meminfo_is_low(const struct meminfo *m)
{
	return m->available < m->total / 32;
}
