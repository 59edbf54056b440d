// SPDX-License-Identifier: Apache-2.0
/*
 * A token bucket: how much of something may be used each second. It holds what comes in one second.
 * A user that finds it not empty may use any amount, which can leave it in debt; nothing more may
 * be used until the debt is paid. So the size of a single use needs no bound, and over time the
 * rate holds.
 */
#ifndef RAMET_BASE_BUCKET_H
#define RAMET_BASE_BUCKET_H

#include <stdint.h>

#define BUCKET_BURST_NS 1000000000ull
/* However much was used at once, the debt is paid after so long. */
#define BUCKET_DEBT_NS (60 * 1000000000ull)

/* A new one is full: {.per_s = …}. */
struct bucket {
	uint32_t per_s;	     /* 0: no limit */
	uint64_t full_at_ns; /* when it is full again; at most a burst and a debt ahead of now */
};

/* Returns 0 when something may be used, or the ns until then: BUCKET_DEBT_NS at most. `now_ns` is
 * of a monotonic clock. */
uint64_t bucket_wait_ns(const struct bucket *b, uint64_t now_ns);
void bucket_use(struct bucket *b, uint64_t amount, uint64_t now_ns);

#endif
