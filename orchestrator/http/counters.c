// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/http/counters.h"

#include <string.h>

#include "orchestrator/http/internal.h"

const double histogram_bucket_s[HISTOGRAM_BUCKETS] = {.001, .0025, .005, .01, .025, .05, .1, .25,
						      .5,   1,	   2.5,	 5,   10,   30,	 60, 300};

const struct counters *http_counters(const struct http *h)
{
	return &h->counters;
}

void metrics_time(struct http *h, enum timed timed, uint64_t us)
{
	struct histogram *times = &h->counters.times[timed];
	double s = (double)us / 1e6;
	size_t i = 0;

	while (i < HISTOGRAM_BUCKETS && s > histogram_bucket_s[i])
		i++;
	times->bucket[i]++;
	times->count++;
	times->seconds += s;
}

/* Counts an error. Codes are constants of the program, so they are few and a linear search
 * suffices. */
void metrics_error(struct http *h, const char *code)
{
	struct counters *c = &h->counters;
	size_t i = 0;

	while (i < c->n_errors && strcmp(c->errors[i].code, code) != 0)
		i++;
	if (i == ERROR_CODES)
		return;
	if (i == c->n_errors)
		c->errors[c->n_errors++].code = code;
	c->errors[i].count++;
}
