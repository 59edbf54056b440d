// SPDX-License-Identifier: Apache-2.0
/* Functions that the loop calls soon, in the order of the requests, because they must not run
 * inside the function that requests them. */
#ifndef RAMET_ORCHESTRATOR_IO_DEFERRED_H
#define RAMET_ORCHESTRATOR_IO_DEFERRED_H

#include "base/list.h"
#include "orchestrator/io/loop.h"

struct deferred_queue {
	struct loop *loop;
	struct list waiting;
	struct loop_timer timer;
};

/* Embedded in its owner; zeroed before first use. */
struct deferred {
	struct list link;
	void (*fn)(void *arg);
	void *arg;
};

void deferred_queue_init(struct deferred_queue *q, struct loop *loop);
void deferred_queue_fini(struct deferred_queue *q);
/* Queues a call fn(arg); an entry that is queued already moves to the end. */
void deferred_run(struct deferred_queue *q, struct deferred *l, void (*fn)(void *arg), void *arg);
void deferred_cancel(struct deferred *l);

#endif
