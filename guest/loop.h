// SPDX-License-Identifier: Apache-2.0
/* The agent's only epoll loop. A watch is embedded in its owner and does not own its descriptor. */
#ifndef RAMET_GUEST_LOOP_H
#define RAMET_GUEST_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct watch {
	int fd;
	uint32_t events;     /* EPOLL*; errors and hang-ups are always reported */
	uint32_t known;	     /* the events that the kernel has */
	struct list changed; /* in the list of watches whose two masks differ */
	void (*on_event)(struct watch *w, uint32_t events);
};

/* Creates the loop; called first. Returns 0 or -errno. */
int loop_init(void);
/* Starts watching `fd` with w->on_event. Returns 0 or -errno. */
int watch_add(struct watch *w, int fd, uint32_t events);
/* Changes the events before the loop waits again: a change that is reverted by then costs no system
 * call. */
void watch_set(struct watch *w, uint32_t events);
/* Changes the events at once. An edge-triggered watch gets a new event for data that is there now,
 * queued behind the events of other watches. */
void watch_again(struct watch *w, uint32_t events);
/* Stops watching; the descriptor stays open. */
void watch_del(struct watch *w);
/* Stops watching and closes the descriptor, unless it is -1, and makes it -1. */
void watch_close(struct watch *w);

/*
 * Waits up to `timeout_ms` (-1: forever) for one event and handles it. One at a time, so that no
 * handler gets an event for something that another handler just freed, and data is read in the
 * order of the kernel's ready list. Returns false when the time ran out.
 */
bool loop_once(int timeout_ms);

/* Returns the milliseconds of CLOCK_MONOTONIC. */
int64_t loop_now_ms(void);
/* Returns the shorter of two timeouts; -1 is none. */
static inline int loop_sooner(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

#endif
