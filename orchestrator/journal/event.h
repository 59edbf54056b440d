// SPDX-License-Identifier: Apache-2.0
/* An event of a call: a part of its output, or its end. */
#ifndef RAMET_ORCHESTRATOR_JOURNAL_EVENT_H
#define RAMET_ORCHESTRATOR_JOURNAL_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum event_type { EVENT_STDOUT, EVENT_STDERR, EVENT_EXIT, EVENT_ERROR };

struct event {
	enum event_type type;
	bool partial; /* lines mode: the line exceeds the limit and continues in the next event */
	int exit_code;
	uint64_t seq;
	int64_t ts_ms; /* since the epoch */
	/* Output: bytes as produced (lines mode: without the newline). Error: text. */
	const uint8_t *data;
	size_t len;
	const char *code; /* error: code of the failure, a static string */
};

#endif
