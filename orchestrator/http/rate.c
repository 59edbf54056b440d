// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/http/rate.h"

#include "base/random.h"

#define BURST_NS (RATE_BURST_S * 1000000000ull)

void rate_init(struct rate *r, uint32_t per_s)
{
	r->per_s = per_s;
	random_bytes(&r->secret, sizeof(r->secret));
	r->secret |= 1;
}

/*
 * One multiplication would put consecutive numbers, such as the addresses of a network, into few
 * sets if the secret is close to a fraction of 2^64.
 */
static struct rate_bucket *set_of(struct rate *r, uint64_t who)
{
	uint64_t h = who * r->secret;

	h = (h ^ h >> 32) * 0x9e3779b97f4a7c15; /* 2^64 by the golden ratio: spreads what is left */
	return r->buckets[h >> (64 - RATE_SET_BITS)];
}

/* Returns the bucket of `who`. If there is none, a full bucket for `who` replaces another one. */
static struct rate_bucket *find(struct rate *r, uint64_t who)
{
	struct rate_bucket *set = set_of(r, who);
	struct rate_bucket *fullest = set;

	for (int i = 0; i < RATE_WAYS; i++) {
		if (set[i].who == who)
			return &set[i];
		if (set[i].full_at_ns < fullest->full_at_ns)
			fullest = &set[i];
	}
	*fullest = (struct rate_bucket){.who = who};
	return fullest;
}

uint64_t rate_take(struct rate *r, uint64_t who, uint64_t now_ns)
{
	if (!r->per_s)
		return 0;
	struct rate_bucket *b = find(r, who);
	uint64_t full_at_ns = b->full_at_ns > now_ns ? b->full_at_ns : now_ns;
	full_at_ns += 1000000000u / r->per_s;
	if (full_at_ns - now_ns <= BURST_NS) {
		b->full_at_ns = full_at_ns;
		return 0;
	}
	return (full_at_ns - now_ns - BURST_NS + 999999) / 1000000;
}
