// SPDX-License-Identifier: Apache-2.0
/* An event of a call: a part of its output, a result, or its end. */
#ifndef RAMET_ORCHESTRATOR_EXEC_EVENT_H
#define RAMET_ORCHESTRATOR_EXEC_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Written to journals: the numbers are fixed. EVENT_ERROR: the call could not be completed.
 * EVENT_FAULT: its code raised an exception. */
enum event_type { EVENT_STDOUT, EVENT_STDERR, EVENT_EXIT, EVENT_ERROR, EVENT_RESULT, EVENT_FAULT };

struct event {
	enum event_type type;
	bool partial; /* lines mode: the line exceeds the limit and continues in the next event */
	bool main;    /* result: the value of the last expression */
	int exit_code;
	uint64_t seq;
	int64_t ts_ms; /* since the epoch */
	/* Output: bytes as produced (lines mode: without the newline). Error: text. Result
	 * and fault: a bundle (bundle.h). */
	const uint8_t *data;
	size_t len;
	const char *code;    /* error: code of the failure, a static string */
	const char *context; /* of the call; NULL: the default interpreter */
};

#endif
