// SPDX-License-Identifier: Apache-2.0
/* Spans of requests, which join the trace that a client names in `traceparent`. */
#ifndef RAMET_ORCHESTRATOR_HTTP_TRACE_H
#define RAMET_ORCHESTRATOR_HTTP_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACEPARENT_LEN 55

struct request;

struct trace_parent {
	uint8_t trace[16], span[8];
	bool sampled; /* the client records this trace */
};

/* Reads the value of a traceparent header (W3C Trace Context, section 3.2), also of a later
 * version of it. Returns false when it is invalid. */
bool trace_parse(struct trace_parent *out, const char *value, size_t len);

/* Reads the request's header, and ignores an invalid one. */
void trace_read(struct request *r);
/* Begins a span if the request's route has one and spans are sent. */
void trace_begin(struct request *r);
/* Add what the request made: a sandbox, a Space, a child of a fork. */
void trace_sandbox(struct request *r, const char *id);
void trace_space(struct request *r, const char *id);
void trace_child(struct request *r, const char *id);
/* Gives the request's span, if it has one, to ramet-notify, or drops it if that is too slow. */
void trace_end(struct request *r, int status);

#endif
