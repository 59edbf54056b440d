// SPDX-License-Identifier: Apache-2.0
/* The input is a traceparent header. An accepted one has the ids that it was read from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/http/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
	if (!right)
		abort();
}

static bool is_hex(const char *text, const uint8_t *p, size_t len)
{
	char digits[3];

	for (size_t i = 0; i < len; i++) {
		snprintf(digits, sizeof(digits), "%02x", p[i]);
		if (memcmp(text + 2 * i, digits, 2) != 0)
			return false;
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t none[16];
	char *value = malloc(size ? size : 1); /* a read past the end is detected */
	struct trace_parent p;

	if (size)
		memcpy(value, data, size);
	if (trace_parse(&p, value, size)) {
		expect(size >= TRACEPARENT_LEN && memcmp(value, "ff", 2) != 0);
		expect(is_hex(value + 3, p.trace, 16) && is_hex(value + 36, p.span, 8));
		expect(memcmp(p.trace, none, 16) != 0 && memcmp(p.span, none, 8) != 0);
	}
	free(value);
	return 0;
}
