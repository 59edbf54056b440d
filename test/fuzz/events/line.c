// SPDX-License-Identifier: Apache-2.0
/* Checks that a parsed line has a valid name and id, and that a written line is parsed. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/events/line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_one(const uint8_t *data, size_t size)
{
	char text[1024], line[AUDIT_LINE_MAX];
	struct audit_line head;
	size_t len = size < sizeof(text) - 1 ? size : sizeof(text) - 1;

	memcpy(text, data, len);
	text[len] = 0;
	const struct audit_event event = {.name = "sandbox.died",
					  .at_ms = 1795298467007 + (int64_t)size,
					  .tenant = text,
					  .sandbox = text,
					  .text = text};
	len = audit_line_make(line, size, "evt_0123456789abcdef0123456789abcdef", &event);
	if (len > sizeof(line) || memchr(line, '\n', len) != line + len - 1 ||
	    !audit_line_parse(&head, line, len - 1) || head.n != size || head.at_ms != event.at_ms)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct audit_line head;

	if (audit_line_parse(&head, (const char *)data, size) &&
	    (!head.name[0] || strlen(head.id) != AUDIT_ID_LEN))
		abort();
	make_one(data, size);
	return 0;
}
