// SPDX-License-Identifier: Apache-2.0
/* The input is a buffer size and a cursor. An accepted key must fit, and must be written as the
 * same text. The input is also a key. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "orchestrator/api/page-key.h"
#include "orchestrator/json/cursor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const char *text, size_t room)
{
	uint8_t *key = malloc(room + 1);
	char again[CURSOR_TEXT_MAX + 1];
	struct err e = {0};
	int len = cursor_read(text, text[0], key, room, &e);

	if (len < 0 ? !e.text[0] : (size_t)len > room)
		abort();
	if (len > 0) {
		cursor_write(again, text[0], key, (size_t)len);
		if (strlen(again) != strlen(text) || strncasecmp(again, text, 1 + 2 * (size_t)len))
			abort();
	}
	free(key);
}

/* A key of a list over all hosts; it must be what is written for the place that it has. */
static void use_place(const uint8_t *data, size_t size)
{
	static const struct fleet_keys keys = {.n = 1, .key = {"a key of a fleet, thirty-two byt"}};
	uint8_t key[FLEET_PAGE_KEY_LEN] = {0}, again[FLEET_PAGE_KEY_LEN];
	struct fleet_place place = {0}, found;
	struct list_position at, same;

	memcpy(key, data, size < sizeof(key) ? size : sizeof(key));
	if (fleet_page_key_read(&place, &at, LIST_SPACES, &keys, key) &&
	    (place.cell > FLEET_CELL_MAX || place.host > FLEET_NUMBER_MAX))
		abort();
	fleet_page_key_write(again, &keys, place, &at);
	if (!fleet_page_key_read(&found, &same, LIST_SPACES, &keys, again) ||
	    found.cell != place.cell || found.host != place.host || same.at_ms != at.at_ms ||
	    strcmp(same.id, at.id) != 0 || strlen(at.id) != SANDBOX_ID_LEN ||
	    memcmp(key + FLEET_ID_BYTES, again + FLEET_ID_BYTES, PAGE_KEY_LEN) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[CURSOR_TEXT_MAX + 40] = "", made[CURSOR_TEXT_MAX + 1];
	size_t len = size > 1 ? size - 1 : 0;

	use_place(data, size);
	if (!len || len >= sizeof(text))
		return 0;
	memcpy(text, data + 1, len);
	use(text, data[0] % (CURSOR_KEY_MAX + 1));
	/* Adds a valid checksum, without which no key would pass the first check. */
	cursor_write(made, 's', data, size < CURSOR_KEY_MAX ? size : CURSOR_KEY_MAX);
	use(made, CURSOR_KEY_MAX);
	return 0;
}
