// SPDX-License-Identifier: Apache-2.0
/* Calls that must not come from inside the call that asked for them: run on the loop's next turn,
 * in order. */
#ifndef RAMET_ORCHESTRATOR_IO_LATER_H
#define RAMET_ORCHESTRATOR_IO_LATER_H

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
/* Moves an entry that already waits to the end. */
void deferred_run(struct deferred_queue *q, struct deferred *l, void (*fn)(void *arg), void *arg);
void deferred_cancel(struct deferred *l);

#endif
