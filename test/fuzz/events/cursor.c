// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "orchestrator/events/cursor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[CURSOR_TEXT_MAX];
	uint64_t n;

	if (cursor_parse((const char *)data, size, &n) &&
	    (cursor_print(text, n) != size || memcmp(text, data, size) != 0))
		abort();
	return 0;
}
