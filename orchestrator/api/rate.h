// SPDX-License-Identifier: Apache-2.0
/*
 * How often somebody may do something: token buckets in a table of fixed size. A bucket holds what
 * comes in RATE_BURST_S seconds, and who has none in the table has a full one. When the table has
 * no place left, the fullest bucket of a few is forgotten: who fills the table with false names
 * gives others more, never less.
 */
#ifndef RAMET_ORCHESTRATOR_API_RATE_H
#define RAMET_ORCHESTRATOR_API_RATE_H

#include <stdint.h>

#define RATE_BURST_S  10
#define RATE_SET_BITS 10
#define RATE_WAYS     8

struct rate {
	uint32_t per_s;	 /* 0: no limit */
	uint64_t secret; /* so that nobody can choose names of one set */
	struct rate_bucket {
		uint64_t who;
		uint64_t full_at_ns; /* when it has all its tokens again */
	} buckets[1u << RATE_SET_BITS][RATE_WAYS];
};

/* `r` is zeroed: pages of the table that nobody came to cost nothing. At most 1,000,000 a second.
 */
void rate_init(struct rate *r, uint32_t per_s);
/* Takes a token of `who`. Returns 0, or the milliseconds until there is one: then none was taken.
 * `now_ns` never goes back. */
uint64_t rate_take(struct rate *r, uint64_t who, uint64_t now_ns);

#endif
