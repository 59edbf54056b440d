// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/core/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"

static const struct {
	const char *name;
	size_t at;
} fields[] = {
	{"ramet-image", offsetof(struct manifest, version)},
	{"vcpus", offsetof(struct manifest, vcpus)},
	{"ram_mib", offsetof(struct manifest, ram_mib)},
	{"rootfs_gb", offsetof(struct manifest, rootfs_gb)},
	{"state_bytes", offsetof(struct manifest, state_bytes)},
	{"memory_bytes", offsetof(struct manifest, memory_bytes)},
	{"layer_bytes", offsetof(struct manifest, layer_bytes)},
};

static uint64_t *field(struct manifest *m, size_t i)
{
	return (uint64_t *)((char *)m + fields[i].at);
}

size_t manifest_write(const struct manifest *m, char *out, size_t size)
{
	struct manifest copy = *m;
	size_t used = 0;

	for (size_t i = 0; i < ARRAY_LEN(fields) && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%s %" PRIu64 "\n",
					 fields[i].name, *field(&copy, i));
	if (used < size)
		used += (size_t)snprintf(out + used, size - used, "end\n");
	return used < size ? used : size - 1;
}

/* Moves *text past `name value\n`; decimal, without sign, spaces or overflow. */
static bool read_field(const char **text, const char *end, const char *name, uint64_t *out)
{
	size_t len = strlen(name);
	const char *p = *text;
	uint64_t value = 0;
	bool any = false;

	if ((size_t)(end - p) <= len || memcmp(p, name, len) != 0 || p[len] != ' ')
		return false;
	for (p += len + 1; p < end && *p >= '0' && *p <= '9'; p++, any = true) {
		if (value > (UINT64_MAX - 9) / 10)
			return false;
		value = value * 10 + (uint64_t)(*p - '0');
	}
	if (!any || p == end || *p != '\n')
		return false;
	*text = p + 1;
	*out = value;
	return true;
}

int manifest_parse(const char *text, size_t len, struct manifest *out, struct err *e)
{
	const char *end = text + len;

	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		if (!read_field(&text, end, fields[i].name, field(out, i)))
			return err_say(e, EINVAL, "the manifest's %s is missing or malformed",
				       fields[i].name);
		if (i == 0 && out->version != MANIFEST_VERSION)
			return err_say(e, EINVAL,
				       "the manifest has version %" PRIu64 ", this one reads %d",
				       out->version, MANIFEST_VERSION);
	}
	if (end - text != 4 || memcmp(text, "end\n", 4) != 0)
		return err_say(e, EINVAL, "the manifest is cut off or goes on after its end");
	return 0;
}
