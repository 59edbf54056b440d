// SPDX-License-Identifier: Apache-2.0
/*
 * A token bucket, for a rate limit per second. Its capacity is the amount for one second. A user
 * that finds the bucket not empty may use any amount, which can leave it in debt; nothing more may
 * be used until the debt is paid. A single use therefore needs no limit, and the rate holds over
 * time.
 */
#ifndef RAMET_BASE_BUCKET_H
#define RAMET_BASE_BUCKET_H

#include <stdint.h>

#define BUCKET_BURST_NS 1000000000ull
/* Maximum debt: after this time it is paid, however much was used at once. */
#define BUCKET_DEBT_NS (60 * 1000000000ull)

/* {.per_s = …} is a full bucket. */
struct bucket {
	uint32_t per_s;	     /* 0: no limit */
	uint64_t full_at_ns; /* when it is full again: at most a burst plus a debt from now */
};

/*
 * Returns the ns until something may be used, at most BUCKET_DEBT_NS; 0: it may be used now.
 * `now_ns` comes from a monotonic clock.
 */
uint64_t bucket_wait_ns(const struct bucket *b, uint64_t now_ns);
/* Takes `amount`, which may leave the bucket in debt. */
void bucket_use(struct bucket *b, uint64_t amount, uint64_t now_ns);

#endif
