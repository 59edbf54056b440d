// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/template/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "proto/versions.h"

static const struct {
	const char *name;
	size_t at;
	size_t text; /* buffer size in bytes; 0: the field is a number */
} fields[] = {
	{"ramet-image", offsetof(struct manifest, version), 0},
	{"template", offsetof(struct manifest, template), MANIFEST_NAME_MAX + 1},
	{"key", offsetof(struct manifest, key), MANIFEST_KEY_LEN + 1},
	{"vcpus", offsetof(struct manifest, vcpus), 0},
	{"ram_mib", offsetof(struct manifest, ram_mib), 0},
	{"rootfs_gb", offsetof(struct manifest, rootfs_gb), 0},
	{"state_bytes", offsetof(struct manifest, state_bytes), 0},
	{"memory_bytes", offsetof(struct manifest, memory_bytes), 0},
	{"layer_bytes", offsetof(struct manifest, layer_bytes), 0},
};

static char *field(struct manifest *m, size_t i)
{
	return (char *)m + fields[i].at;
}

static size_t write_field(const struct manifest *m, size_t i, char *out, size_t size)
{
	const char *at = (const char *)m + fields[i].at;

	return (size_t)(fields[i].text ? snprintf(out, size, "%s %s\n", fields[i].name, at)
				       : snprintf(out, size, "%s %" PRIu64 "\n", fields[i].name,
						  *(const uint64_t *)at));
}

size_t manifest_write(const struct manifest *m, char *out, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < ARRAY_LEN(fields) && used < size; i++)
		used += write_field(m, i, out + used, size - used);
	if (used < size)
		used += (size_t)snprintf(out + used, size - used, "end\n");
	return used < size ? used : size - 1;
}

/* Parses a decimal number without sign or spaces; fails on overflow. */
static bool read_number(const char **text, const char *end, uint64_t *out)
{
	const char *p = *text;
	uint64_t value = 0;

	for (; p < end && *p >= '0' && *p <= '9'; p++) {
		if (value > (UINT64_MAX - 9) / 10)
			return false;
		value = value * 10 + (uint64_t)(*p - '0');
	}
	bool any = p > *text;
	*text = p;
	*out = value;
	return any;
}

/* Parses a word of the characters that template names and keys may have. */
static bool read_word(const char **text, const char *end, char *out, size_t room)
{
	size_t len = 0;

	for (const char *p = *text; p < end && len < room; p++, len++)
		if (!*p || !strchr("abcdefghijklmnopqrstuvwxyz0123456789._-", *p))
			break;
	if (!len || len == room)
		return false;
	memset(out, 0, room);
	memcpy(out, *text, len);
	*text += len;
	return true;
}

/* Parses `name value\n` and moves *text past it. */
static bool read_field(const char **text, const char *end, size_t i, char *out)
{
	size_t len = strlen(fields[i].name);
	const char *p = *text;
	uint64_t number;
	bool well;

	if ((size_t)(end - p) <= len || memcmp(p, fields[i].name, len) != 0 || p[len] != ' ')
		return false;
	p += len + 1;
	if (fields[i].text) {
		well = read_word(&p, end, out, fields[i].text);
	} else {
		well = read_number(&p, end, &number);
		if (well)
			*(uint64_t *)out = number;
	}
	if (!well || p == end || *p != '\n')
		return false;
	*text = p + 1;
	return true;
}

int manifest_parse(const char *text, size_t len, struct manifest *out, struct err *e)
{
	const char *end = text + len;

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		if (!read_field(&text, end, i, field(out, i)))
			return err_say(e, EINVAL, "the manifest's %s is missing or malformed",
				       fields[i].name);
		if (i == 0 && out->version != MANIFEST_VERSION)
			return err_say(e, ENOTSUP,
				       "the manifest has version %" PRIu64
				       ", this Ramet supports only %d",
				       out->version, MANIFEST_VERSION);
	}
	if (end - text != 4 || memcmp(text, "end\n", 4) != 0)
		return err_say(e, EINVAL, "the manifest is cut off or has text after its end");
	return 0;
}
