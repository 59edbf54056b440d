// SPDX-License-Identifier: Apache-2.0
/* The clocks and their purposes. */
#ifndef RAMET_BASE_CLOCK_H
#define RAMET_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* The monotonic clock in ns, for all timers and measurements. */
static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * The clock for lifetimes and idle times: nobody can set it, and it advances while the host sleeps.
 */
static inline uint64_t boottime_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Wall-clock time since the epoch: for people, and for data that outlives the host's uptime. */
static inline int64_t realtime_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Returns the wall-clock time, but at least 1 ms after `last_ms`. For times that say in which order
 * things were done: two of these may happen within a millisecond, the clock may be set back, and
 * another host's clock may be ahead. */
static inline int64_t realtime_ms_after(int64_t last_ms)
{
	const int64_t now_ms = realtime_ms();

	return now_ms > last_ms ? now_ms : last_ms + 1;
}

#endif
