// SPDX-License-Identifier: Apache-2.0
/*
 * The orchestrator's event loop: that of h2o, with an io_uring ring in it. Code that runs on it
 * must not block: it uses the ring for descriptors, timers for time, and loop_work for long
 * computations and files on disk. All functions must be called on the loop's thread unless noted
 * otherwise.
 */
#ifndef RAMET_ORCHESTRATOR_IO_LOOP_H
#define RAMET_ORCHESTRATOR_IO_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

struct loop;

int loop_new(struct loop **out, struct err *e);
/* Completes the jobs of loop_work, cancels operations in flight and calls their callbacks, then
 * frees the loop. NULL is fine. */
void loop_free(struct loop *l);
/* Runs until loop_stop; returns 0, or -errno when the loop itself failed. */
int loop_run(struct loop *l);
/* Makes loop_run return. Async-signal-safe and thread-safe. */
void loop_stop(struct loop *l);
/* Sets the one function that is called at least once in each turn, before the loop sleeps, to send
 * gathered output. NULL: none. */
void loop_before_sleep(struct loop *l, void (*fn)(void *arg), void *arg);
/* Returns the h2o_loop_t *, for orchestrator/http only. */
void *loop_h2o(struct loop *l);

/*
 * Operations on the ring. A callback is called exactly once, never inside the function that started
 * the operation, with the result of the system call (-errno on failure; -ECANCELED after a
 * loop_cancel that came in time). Buffers and messages must stay valid until then; a descriptor may
 * be closed only when no operation on it is in flight. Operations that fail for lack of memory
 * (-ENOMEM, -ENOBUFS) are retried for about 2 s before the callback gets the error. The functions
 * return NULL while the loop is being freed.
 */
struct loop_op;
typedef void loop_fn(void *arg, int result);

struct loop_op *loop_poll(struct loop *l, int fd, unsigned poll_mask, loop_fn *fn, void *arg);
struct loop_op *loop_recv(struct loop *l, int fd, void *buf, size_t len, loop_fn *fn, void *arg);
/* Sends all bytes or fails; at most INT_MAX bytes. */
struct loop_op *loop_send(struct loop *l, int fd, const void *buf, size_t len, loop_fn *fn,
			  void *arg);
struct loop_op *loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn, void *arg);
struct loop_op *loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
			     void *arg);
void loop_cancel(struct loop *l, struct loop_op *op);

/* A one-shot, monotonic timer, embedded in its owner and zeroed before first use. Setting it again
 * moves it. Setting, moving and clearing cost O(log n). */
struct loop_timer {
	uint64_t due_ms;
	size_t heap_index; /* 1-based; 0: not set */
	void (*fn)(void *arg);
	void *arg;
};
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ms);
/* Like loop_timer_set, with a new function and argument. */
static inline void loop_timer_start(struct loop *l, struct loop_timer *t, void (*fn)(void *arg),
				    void *arg, uint64_t after_ms)
{
	t->fn = fn;
	t->arg = arg;
	loop_timer_set(l, t, after_ms);
}
void loop_timer_clear(struct loop *l, struct loop_timer *t);
static inline bool loop_timer_is_set(const struct loop_timer *t)
{
	return t->heap_index;
}
uint64_t loop_now_ms(struct loop *l); /* monotonic */

/* Each pool has two threads, so that jobs of one kind never wait for jobs of another kind. */
enum loop_pool {
	LOOP_CPU,  /* computations that touch no file */
	LOOP_DISK, /* open, stat and sync: milliseconds, unless the disk hangs */
	LOOP_BULK, /* copies of whole snapshots: seconds to minutes */
	LOOP_NPOOLS,
};
/* Runs `work` on a worker thread of the pool, then `done` on the loop. Returns -errno when it
 * cannot be queued; then neither is called. */
int loop_work(struct loop *l, enum loop_pool pool, void (*work)(void *arg), void (*done)(void *arg),
	      void *arg);

#endif
