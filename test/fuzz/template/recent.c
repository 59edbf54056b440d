// SPDX-License-Identifier: Apache-2.0
/* Parsed recent sizes must survive being printed and parsed again. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/template/recent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[RECENT_TEXT_MAX], again[RECENT_TEXT_MAX];
	struct recents first, second;

	recents_parse(&first, (const char *)data, size);
	size_t len = recents_print(&first, text);
	if (len > sizeof(text))
		abort();
	recents_parse(&second, text, len);
	if (recents_print(&second, again) != len || memcmp(text, again, len) != 0)
		abort();
	return 0;
}
