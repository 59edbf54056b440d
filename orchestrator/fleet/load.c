// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/fleet/load.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

void load_print(char out[static LOAD_TEXT_MAX], const struct place_load *load)
{
	int len = snprintf(out, LOAD_TEXT_MAX, "%u %d", load->used, load->closed);

	for (size_t i = 0; i < PLACE_KINDS; i++)
		len += snprintf(out + len, LOAD_TEXT_MAX - (size_t)len, " %u", load->warm[i]);
	snprintf(out + len, LOAD_TEXT_MAX - (size_t)len, " %u %u", load->sandboxes, load->free_mib);
}

static void read_shown(struct place_load *load, const char *at)
{
	uint32_t sandboxes, free_mib;
	const bool said = *at++ == ' ' && number_take(&at, 0, UINT32_MAX, &sandboxes) &&
			  *at++ == ' ' && number_take(&at, 0, UINT32_MAX, &free_mib) &&
			  (!*at || *at == ' ');

	load->sandboxes = said ? sandboxes : 0;
	load->free_mib = said ? free_mib : 0;
}

bool load_read(struct place_load *load, const char *text, size_t len)
{
	char copy[2 * LOAD_TEXT_MAX] = "";
	uint32_t n[2 + PLACE_KINDS];
	const char *at = copy;

	memcpy(copy, text, min_u64(len, sizeof(copy) - 1));
	for (size_t i = 0; i < 2 + PLACE_KINDS; i++) {
		static const uint32_t most[] = {PLACE_FULL, 1, UINT8_MAX};

		if ((i && *at++ != ' ') || !number_take(&at, 0, most[min_u64(i, 2)], &n[i]))
			return false;
	}
	if (*at && *at != ' ')
		return false;
	load->used = (uint16_t)n[0];
	load->closed = n[1];
	for (size_t i = 0; i < PLACE_KINDS; i++)
		load->warm[i] = (uint8_t)n[2 + i];
	read_shown(load, at);
	return true;
}

uint64_t load_hash(const char *text, size_t len)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
	return hash;
}

uint32_t load_kind(const char *template, uint32_t vcpus, uint32_t ram_mib, uint32_t rootfs_gb)
{
	char text[128];
	int len =
		snprintf(text, sizeof(text), "%u %u %u %.80s", vcpus, ram_mib, rootfs_gb, template);

	return (uint32_t)(load_hash(text, (size_t)len) >> 32) % LOAD_KIND_NONE;
}
