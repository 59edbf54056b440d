// SPDX-License-Identifier: Apache-2.0
#include "base/bucket.h"

#include "base/num.h"

#define SECOND_NS 1000000000ull
#define AHEAD_NS  (BUCKET_BURST_NS + BUCKET_DEBT_NS)

/* Returns the time until the bucket is full; 0 when it is full. */
static uint64_t ahead_ns(const struct bucket *b, uint64_t now_ns)
{
	return b->full_at_ns > now_ns ? min_u64(b->full_at_ns - now_ns, AHEAD_NS) : 0;
}

/*
 * Returns how long `amount` takes to flow into the bucket, rounded up so that no amount is free.
 * The limit of AHEAD_NS is applied first, so that the multiplication cannot overflow.
 */
static uint64_t duration_ns(uint64_t amount, uint32_t per_s)
{
	uint64_t seconds = amount / per_s;

	if (seconds > AHEAD_NS / SECOND_NS)
		return AHEAD_NS;
	return seconds * SECOND_NS + (amount % per_s * SECOND_NS + per_s - 1) / per_s;
}

uint64_t bucket_wait_ns(const struct bucket *b, uint64_t now_ns)
{
	uint64_t ahead = ahead_ns(b, now_ns);

	return b->per_s && ahead > BUCKET_BURST_NS ? ahead - BUCKET_BURST_NS : 0;
}

void bucket_use(struct bucket *b, uint64_t amount, uint64_t now_ns)
{
	if (!b->per_s)
		return;
	uint64_t ahead = ahead_ns(b, now_ns) + duration_ns(amount, b->per_s);
	b->full_at_ns = now_ns + min_u64(ahead, AHEAD_NS);
}
