// SPDX-License-Identifier: Apache-2.0
/*
 * The VM process's event loop: epoll on one thread, which serves devices and the control socket.
 * Only this thread may call these functions.
 */
#ifndef RAMET_VMM_DEV_EVENT_LOOP_H
#define RAMET_VMM_DEV_EVENT_LOOP_H

#include <stdint.h>

#include "base/err.h"

struct event_loop;
struct event_watch;

/* `events` is EPOLLIN etc. */
typedef void event_fn(void *arg, uint32_t events);
typedef void event_timer_fn(void *arg);

int event_loop_new(struct event_loop **out, struct err *e);
void event_loop_free(struct event_loop *l);
/* Runs until event_loop_stop, then returns. */
void event_loop_run(struct event_loop *l);
/* Ends the event_loop_run that runs, after the present turn. */
void event_loop_stop(struct event_loop *l);
/*
 * Runs one turn: waits up to `timeout_ms` (-1: for ever) for events and timers and serves them.
 * Returns the number of callbacks that ran.
 */
int event_loop_turn(struct event_loop *l, int timeout_ms);

/* Calls fn while `events` are pending on fd (level-triggered). The caller keeps the fd. */
int event_watch_add(struct event_loop *l, int fd, uint32_t events, event_fn *fn, void *arg,
		    struct event_watch **out, struct err *e);
/* Sets the events. With 0, only errors and hang-up are reported until it is set again. */
void event_watch_set(struct event_watch *w, uint32_t events);
/* Mutes the watch, including hang-up, until the next event_watch_set. */
void event_watch_mute(struct event_watch *w);
/* Deletes the watch. Safe inside any callback; fn is not called again. */
void event_watch_del(struct event_watch *w);

/* A one-shot timer on the monotonic clock, embedded in its owner. Setting it again moves it. */
struct event_timer {
	uint64_t due_ns; /* 0: not set */
	event_timer_fn *fn;
	void *arg;
	struct event_timer *next;
};
void event_timer_set(struct event_loop *l, struct event_timer *t, uint64_t after_ns);
void event_timer_clear(struct event_loop *l, struct event_timer *t);

#endif
