// SPDX-License-Identifier: Apache-2.0
/* Waits for something that a worker does for all who wait. Embedded in its owner; zeroed before
 * first use. */
#ifndef RAMET_ORCHESTRATOR_IMAGES_WAITER_H
#define RAMET_ORCHESTRATOR_IMAGES_WAITER_H

#include "base/elements.h"

struct failure;

struct waiter {
	struct list link;
	void (*fn)(void *arg, const struct failure *f);
	void *arg;
};

static inline void waiter_add(struct list *waits, struct waiter *w,
			      void (*fn)(void *arg, const struct failure *f), void *arg)
{
	w->fn = fn;
	w->arg = arg;
	list_add_tail(waits, &w->link);
}

/* Calls the functions of all who wait. */
static inline void waiters_answer(struct list *waits, const struct failure *f)
{
	list_drain_of (w, struct waiter, link, waits) {
		list_del(&w->link);
		w->fn(w->arg, f);
	}
}

/* Cancels a wait; does nothing if `w` does not wait. */
static inline void waiter_cancel(struct waiter *w)
{
	list_del(&w->link);
}

#endif
