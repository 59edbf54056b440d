// SPDX-License-Identifier: Apache-2.0
/* The ring half of the loop: one op per SQE under way. For loop.c only. */
#ifndef RAMET_ORCHESTRATOR_IO_URING_H
#define RAMET_ORCHESTRATOR_IO_URING_H

#include <liburing.h>
#include <stdbool.h>

#include "base/list.h"
#include "orchestrator/io/loop.h"

#define URING_ENTRIES 256

struct uring {
	struct io_uring ring;
	struct loop *loop;	/* whose timers ops wait with */
	unsigned in_flight;	/* ops whose callback has not come yet */
	bool closing;		/* no new ops */
	bool refused;		/* the kernel took nothing of the last submission */
	struct list backlog;	/* ops for which the submission queue had no room */
	struct list paused;	/* ops that are tried again when their timer fires */
	struct list cancels;	/* ops in the kernel, to be cancelled there */
	struct list ended;	/* ops that were cancelled before the kernel had them */
	struct loop_op *unused; /* ops kept for the next call */
};

int uring_init(struct uring *u, struct loop *l, struct err *e);
/* Cancels what is under way and waits for it; the callbacks come from here. */
void uring_fini(struct uring *u);
/* Readable while completions wait. */
int uring_fd(const struct uring *u);
/* Hands queued operations to the kernel, the backlog included, until it takes no more. */
void uring_submit(struct uring *u);
/* Returns how long the loop may sleep before the next uring_submit: 0 when something is queued,
 * a few ms when the kernel refused it just now, INT32_MAX when nothing is. */
int32_t uring_wait_ms(const struct uring *u);
/* Calls back for the completions there are, URING_ENTRIES at most; false when there was none. */
bool uring_reap(struct uring *u);

#endif
