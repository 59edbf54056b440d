// SPDX-License-Identifier: Apache-2.0
/* The input is an Authorization header. An accepted key must be part of it and have valid check
 * digits. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/http/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
	if (!right)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *value = malloc(size + 1);
	const char *key;
	size_t len;

	memcpy(value, data, size);
	char *exact = realloc(value, size ? size : 1); /* a read past the end is detected */
	if (guard_bearer(exact, size, &key, &len)) {
		expect(len > 0 && key > exact && key + len <= exact + size);
		expect(*key != ' ' && key[len - 1] != ' ');
		if (key_text_is_whole(key, len))
			expect(len == KEY_TEXT_LEN && memcmp(key, "rmt_", 4) == 0);
	}
	free(exact);
	return 0;
}
