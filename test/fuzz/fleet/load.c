// SPDX-License-Identifier: Apache-2.0
/* A peer's load: numbers that are read are in range, and a printed load is read as the same one. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/fleet/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct place_load load = {0}, again = {0};
	char text[LOAD_TEXT_MAX];

	if (!load_read(&load, (const char *)data, size))
		return 0;
	must(load.used <= PLACE_FULL);
	load_print(text, &load);
	must(load_read(&again, text, strlen(text)) && memcmp(&load, &again, sizeof(load)) == 0);
	return 0;
}
