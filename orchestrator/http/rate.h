// SPDX-License-Identifier: Apache-2.0
/*
 * Token buckets in a table of fixed size. A bucket holds the tokens of RATE_BURST_S seconds; a name
 * without a bucket in the table has a full one. When the table is full, the fullest bucket of a few
 * is replaced, so that filling the table with invented names gives others more tokens, never fewer.
 */
#ifndef RAMET_ORCHESTRATOR_HTTP_RATE_H
#define RAMET_ORCHESTRATOR_HTTP_RATE_H

#include <stdint.h>

#define RATE_BURST_S  10
#define RATE_SET_BITS 10
#define RATE_WAYS     8

struct rate {
	uint32_t per_s;	 /* 0: no limit */
	uint64_t secret; /* so that clients cannot choose names that share a set */
	struct rate_bucket {
		uint64_t who;
		uint64_t full_at_ns; /* when the bucket will be full */
	} buckets[1u << RATE_SET_BITS][RATE_WAYS];
};

/* Initializes *r, which the caller has zeroed so that unused pages of the table cost nothing.
 * `per_s` is at most 1,000,000. */
void rate_init(struct rate *r, uint32_t per_s);
/* Takes a token of `who`. Returns 0, or, without taking one, the milliseconds until there is one.
 * `now_ns` must not decrease. */
uint64_t rate_take(struct rate *r, uint64_t who, uint64_t now_ns);

#endif
