// SPDX-License-Identifier: Apache-2.0
/* The ring part of the loop. Only loop.c calls these functions. An op is a struct loop_op. */
#ifndef RAMET_ORCHESTRATOR_IO_URING_H
#define RAMET_ORCHESTRATOR_IO_URING_H

#include <liburing.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/list.h"

struct loop;

#define URING_ENTRIES 256

struct uring {
	struct io_uring ring;
	struct loop *loop;	/* for the timers that delay retries */
	unsigned in_flight;	/* ops whose callback was not called yet */
	bool closing;		/* no new ops are accepted */
	bool refused;		/* the kernel accepted nothing from the last submission */
	struct list backlog;	/* ops that did not fit in the submission queue */
	struct list paused;	/* ops that are retried when their timer fires */
	struct list cancels;	/* ops in the kernel, to be cancelled there */
	struct list ended;	/* ops that were cancelled before the kernel had them */
	struct loop_op *unused; /* free list */
};

int uring_init(struct uring *u, struct loop *l, struct err *e);
/* Cancels operations in flight, waits for them and calls their callbacks. */
void uring_fini(struct uring *u);
/* Returns a descriptor that is readable while completions wait. */
int uring_fd(const struct uring *u);
/* Submits queued operations, including the backlog, until the kernel accepts no more. */
void uring_submit(struct uring *u);
/* Returns how long the loop may sleep before the next uring_submit: INT32_MAX when nothing is
 * queued, a few ms when the kernel just refused a submission, else 0. */
int32_t uring_wait_ms(const struct uring *u);
/* Calls the callbacks of up to URING_ENTRIES completions; returns false when there were none. */
bool uring_reap(struct uring *u);

#endif
