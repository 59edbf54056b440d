// SPDX-License-Identifier: Apache-2.0
/* Reads a corrupt or foreign manifest of a snapshot. An accepted one must survive a round trip. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/template/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int right)
{
	if (!right)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[MANIFEST_MAX];
	struct manifest m, again;
	struct err e = {0};

	if (manifest_parse((const char *)data, size, &m, &e) < 0) {
		expect(e.text[0] != 0);
		return 0;
	}
	size_t len = manifest_write(&m, text, sizeof(text));
	expect(manifest_parse(text, len, &again, &e) == 0);
	expect(memcmp(&m, &again, sizeof(m)) == 0);
	return 0;
}
