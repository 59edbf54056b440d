// SPDX-License-Identifier: Apache-2.0
/* An event of a call: a piece of its output, or its end. */
#ifndef RAMET_ORCHESTRATOR_JOURNAL_EVENT_H
#define RAMET_ORCHESTRATOR_JOURNAL_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum event_type { EVENT_STDOUT, EVENT_STDERR, EVENT_EXIT, EVENT_ERROR };

struct event {
	enum event_type type;
	bool partial; /* lines mode: this line goes on in the next event (it is over the limit) */
	int exit_code;
	uint64_t seq;
	int64_t ts_ms; /* since the epoch */
	const uint8_t
		*data; /* output: bytes as produced (lines: without the newline); error: text */
	size_t len;
	const char *code; /* error: as in a failure; static */
};

#endif
