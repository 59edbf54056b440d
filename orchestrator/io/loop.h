// SPDX-License-Identifier: Apache-2.0
/*
 * The orchestrator's one loop: h2o's event loop with an io_uring ring in it. Nothing that runs on
 * it blocks: descriptors go through the ring, time through timers, long computations and
 * files on disk through loop_work. Everything here is called on the loop's thread unless said
 * otherwise.
 */
#ifndef RAMET_ORCHESTRATOR_IO_LOOP_H
#define RAMET_ORCHESTRATOR_IO_LOOP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

struct loop;

int loop_new(struct loop **out, struct err *e);
/* Ends what is under way first: its callbacks come from here, with -ECANCELED. */
void loop_free(struct loop *l);
/* Runs until loop_stop; returns 0, or -errno when the loop itself failed. */
int loop_run(struct loop *l);
/* Async-signal-safe and thread-safe. */
void loop_stop(struct loop *l);
/* Called once or a few times in each turn, before the loop sleeps: for output that is gathered. One
 * only; NULL for none. */
void loop_before_sleep(struct loop *l, void (*fn)(void *arg), void *arg);
/* h2o_loop_t *, for orchestrator/api only. */
void *loop_h2o(struct loop *l);

/*
 * One operation on the ring. The callback comes exactly once, never from inside the call that
 * started it, with what the system call would have returned (-errno on failure; -ECANCELED after a
 * loop_cancel that came in time). Buffers and messages stay valid until then; a descriptor may be
 * closed only when nothing is under way on it. What fails for want of memory (-ENOMEM, -ENOBUFS) is
 * tried again for about 2 s before the callback hears of it, except a sync. NULL while the loop is
 * freed.
 */
struct loop_op;
typedef void loop_fn(void *arg, int result);

struct loop_op *loop_poll(struct loop *l, int fd, unsigned poll_mask, loop_fn *fn, void *arg);
struct loop_op *loop_recv(struct loop *l, int fd, void *buf, size_t len, loop_fn *fn, void *arg);
/* Sends all of it or fails; at most INT_MAX bytes. */
struct loop_op *loop_send(struct loop *l, int fd, const void *buf, size_t len, loop_fn *fn,
			  void *arg);
struct loop_op *loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn, void *arg);
struct loop_op *loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
			     void *arg);
struct loop_op *loop_fsync(struct loop *l, int fd, loop_fn *fn, void *arg);
void loop_cancel(struct loop *l, struct loop_op *op);

/* One-shot timer, monotonic; embedded in its owner, zeroed before first use; set again to move it.
 * Setting, moving and clearing cost O(log n). */
struct loop_timer {
	uint64_t due_ms;
	size_t heap_index; /* 1-based; 0: not set */
	void (*fn)(void *arg);
	void *arg;
};
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ms);
void loop_timer_clear(struct loop *l, struct loop_timer *t);
uint64_t loop_now_ms(struct loop *l); /* monotonic */

/* Each pool has two threads of its own, so that work of one kind never waits for another kind. */
enum loop_pool {
	LOOP_CPU,  /* computes and touches no file */
	LOOP_DISK, /* opens, stats or syncs: milliseconds, unless the disk is stuck */
	LOOP_BULK, /* moves whole images: seconds to minutes */
	LOOP_NPOOLS,
};
/* Runs `work` on a worker thread of the pool, then `done` on the loop. -errno when it can't be
 * queued; then neither is called. */
int loop_work(struct loop *l, enum loop_pool pool, void (*work)(void *arg), void (*done)(void *arg),
	      void *arg);

#endif
