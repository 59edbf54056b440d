// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/io/deferred.h"
#include "base/elements.h"

static void run_waiting(void *arg)
{
	struct deferred_queue *q = arg;
	struct list now = {0};

	/* Entries that these functions add wait for the next run, so that this one ends. */
	list_move_all(&now, &q->waiting);
	list_drain_of (l, struct deferred, link, &now) {
		list_del(&l->link);
		l->fn(l->arg);
	}
}

void deferred_queue_init(struct deferred_queue *q, struct loop *loop)
{
	*q = (struct deferred_queue){.loop = loop, .timer = {.fn = run_waiting, .arg = q}};
}

void deferred_queue_fini(struct deferred_queue *q)
{
	loop_timer_clear(q->loop, &q->timer);
	while (!list_empty(&q->waiting))
		list_del(q->waiting.next);
}

void deferred_run(struct deferred_queue *q, struct deferred *l, void (*fn)(void *arg), void *arg)
{
	deferred_cancel(l);
	l->fn = fn;
	l->arg = arg;
	list_add_tail(&q->waiting, &l->link);
	if (!loop_timer_is_set(&q->timer))
		loop_timer_set(q->loop, &q->timer, 0);
}

void deferred_cancel(struct deferred *l)
{
	list_del(&l->link);
}
