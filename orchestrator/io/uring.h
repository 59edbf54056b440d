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
	unsigned in_flight;	/* ops whose callback has not come yet */
	bool closing;		/* no new ops */
	struct list cancels;	/* ops whose cancel found the submission queue full */
	struct loop_op *unused; /* ops kept for the next call */
};

int uring_init(struct uring *u, struct err *e);
/* Cancels what is under way and waits for it; the callbacks come from here. */
void uring_fini(struct uring *u);
/* Readable while completions wait. */
int uring_fd(const struct uring *u);
/* Hands queued operations to the kernel. */
void uring_submit(struct uring *u);
/* True when there is something for uring_submit. */
bool uring_queued(const struct uring *u);
/* Calls back for the completions there are, URING_ENTRIES at most; false when there was none. */
bool uring_reap(struct uring *u);

#endif
