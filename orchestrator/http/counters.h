// SPDX-License-Identifier: Apache-2.0
/* What the server counts. */
#ifndef RAMET_ORCHESTRATOR_HTTP_COUNTERS_H
#define RAMET_ORCHESTRATOR_HTTP_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "orchestrator/http/route.h"

struct http;

#define HISTOGRAM_BUCKETS 16
#define ERROR_CODES	  128

/* Limits per second, from the settings of the same names. */
enum limit {
	LIMIT_CONNECTIONS, /* client_connections_s */
	LIMIT_REQUESTS,	   /* client_requests_s */
	LIMIT_FAILURES,	   /* client_failures_s */
	LIMIT_TENANT,	   /* tenant_requests_s */
	LIMITS
};

extern const double histogram_bucket_s[HISTOGRAM_BUCKETS];

struct counters {
	size_t conns, live;	 /* open connections; requests in flight */
	uint64_t (*requests)[6]; /* by route (the last row: no route), and by the status's first
				    digit */
	uint64_t connections, bytes_sent, resets_cut, stalled_cut, spans_dropped;
	uint64_t limited[LIMITS];
	struct histogram {
		uint64_t bucket[HISTOGRAM_BUCKETS + 1], count;
		double seconds;
	} times[TIMED_KINDS];
	struct {
		const char *code;
		uint64_t count;
	} errors[ERROR_CODES];
	size_t n_errors;
};

const struct counters *http_counters(const struct http *h);

void metrics_time(struct http *h, enum timed timed, uint64_t us);
/* `code` must be a string constant. */
void metrics_error(struct http *h, const char *code);

#endif
