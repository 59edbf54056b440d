// SPDX-License-Identifier: Apache-2.0
/* The agent's one epoll loop. A watch is embedded in what it belongs to and owns no descriptor. */
#ifndef RAMET_GUEST_LOOP_H
#define RAMET_GUEST_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct watch {
	int fd;
	uint32_t events;     /* EPOLL*; errors and hang-ups are always told */
	uint32_t known;	     /* to the kernel */
	struct list changed; /* while the two differ */
	void (*on_event)(struct watch *w, uint32_t events);
};

/* Must be called first. 0 or -errno. */
int loop_init(void);
/* Starts watching `fd` with w->on_event. 0 or -errno. */
int watch_add(struct watch *w, int fd, uint32_t events);
/* Changes what is watched for, before the next event is waited for: what is changed and back again
 * by then costs nothing. */
void watch_set(struct watch *w, uint32_t events);
/* The same, but at once: an edge-triggered watch is told again of what is there now, after all that
 * others were told. */
void watch_again(struct watch *w, uint32_t events);
/* Stops watching; the descriptor stays open. */
void watch_del(struct watch *w);

/*
 * Waits for one event at most `timeout_ms` (-1: for ever) and handles it. One at a time, so that
 * no handler meets an event of something that another one just freed, and the kernel's ready list
 * keeps its order: what came first is read first. False when none came.
 */
bool loop_once(int timeout_ms);

/* Milliseconds of CLOCK_MONOTONIC. */
int64_t loop_now_ms(void);

#endif
