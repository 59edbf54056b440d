// SPDX-License-Identifier: Apache-2.0
/* The VM process's event loop: epoll on one thread, which serves devices and the control socket.
 * Only loop_stop may be called from another thread. */
#ifndef RAMET_VMM_DEV_LOOP_H
#define RAMET_VMM_DEV_LOOP_H

#include <stdint.h>

#include "base/err.h"

struct loop;
struct loop_watch;

/* `events` as EPOLLIN etc. */
typedef void loop_fn(void *arg, uint32_t events);
typedef void loop_timer_fn(void *arg);

int loop_new(struct loop **out, struct err *e);
void loop_free(struct loop *l);
/* Runs until loop_stop, then returns. */
void loop_run(struct loop *l);
/* Safe from any thread. */
void loop_stop(struct loop *l);
/* One turn: waits up to `timeout_ms` (-1: for ever) for something to do and does it. Returns how
 * many callbacks ran. */
int loop_turn(struct loop *l, int timeout_ms);

/* Calls fn while `events` hold on fd (level-triggered; the fd stays the caller's). */
int loop_watch_add(struct loop *l, int fd, uint32_t events, loop_fn *fn, void *arg,
		   struct loop_watch **out, struct err *e);
/* events 0: watched no longer until set again, except for errors and hang-up. */
void loop_watch_set(struct loop_watch *w, uint32_t events);
/* Not watched at all, not even for hang-up, until the next loop_watch_set. */
void loop_watch_mute(struct loop_watch *w);
/* Safe inside any callback; fn is not called again. */
void loop_watch_del(struct loop_watch *w);

/* One-shot timer on the monotonic clock, embedded in its owner; set again to move it. */
struct loop_timer {
	uint64_t due_ns; /* 0: not set */
	loop_timer_fn *fn;
	void *arg;
	struct loop_timer *next;
};
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ns);
void loop_timer_clear(struct loop *l, struct loop_timer *t);

#endif
