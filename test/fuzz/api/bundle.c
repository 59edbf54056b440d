// SPDX-License-Identifier: Apache-2.0
/* Prints a result that a guest sent as an event. The line must be JSON, whatever is in it. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/api/handler.h"
#include "orchestrator/exec/bundle.h"
#include "orchestrator/json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
	if (!right)
		abort();
}

static void print(enum event_type type, const uint8_t *data, size_t size)
{
	const struct event ev = {.type = type, .data = data, .len = size, .seq = 1};
	struct text t = {0};

	event_line(&t, &ev, NULL);
	/* The newline ends the line, and is the only one. */
	expect(t.len > 1 && memchr(t.p, '\n', t.len) == t.p + t.len - 1);
	expect(json_is_value(t.p, t.len, 0));
	text_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!bundle_is_sound(data, size))
		return 0;
	print(EVENT_RESULT, data, size);
	print(EVENT_FAULT, data, size);
	return 0;
}
