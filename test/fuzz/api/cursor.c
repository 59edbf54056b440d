// SPDX-License-Identifier: Apache-2.0
/* The input is a buffer size and a cursor. An accepted key must fit, and must be written as the
 * same text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[CURSOR_TEXT_MAX + 40] = "", made[CURSOR_TEXT_MAX + 1];
	size_t len = size > 1 ? size - 1 : 0;

	if (!len || len >= sizeof(text))
		return 0;
	memcpy(text, data + 1, len);
	use(text, data[0] % (CURSOR_KEY_MAX + 1));
	/* Adds a valid checksum, without which no key would pass the first check. */
	cursor_write(made, 's', data, size < CURSOR_KEY_MAX ? size : CURSOR_KEY_MAX);
	use(made, CURSOR_KEY_MAX);
	return 0;
}
