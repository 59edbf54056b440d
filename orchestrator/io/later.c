// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/io/later.h"

static void run_waiting(void *arg)
{
	struct later_queue *q = arg;
	struct list now;

	/* What is added meanwhile waits for the next turn. */
	list_init(&now);
	while (!list_empty(&q->waiting)) {
		struct list *first = q->waiting.next;

		list_del(first);
		list_add_tail(&now, first);
	}
	while (!list_empty(&now)) {
		struct later *l = container_of(now.next, struct later, link);

		list_del(&l->link);
		l->fn(l->arg);
	}
}

void later_queue_init(struct later_queue *q, struct loop *loop)
{
	*q = (struct later_queue){.loop = loop, .timer = {.fn = run_waiting, .arg = q}};
	list_init(&q->waiting);
}

void later_queue_fini(struct later_queue *q)
{
	loop_timer_clear(q->loop, &q->timer);
	while (!list_empty(&q->waiting))
		list_del(q->waiting.next);
}

void later_run(struct later_queue *q, struct later *l, void (*fn)(void *arg), void *arg)
{
	later_cancel(l);
	l->fn = fn;
	l->arg = arg;
	list_add_tail(&q->waiting, &l->link);
	if (!q->timer.heap_index)
		loop_timer_set(q->loop, &q->timer, 0);
}

void later_cancel(struct later *l)
{
	if (l->link.next)
		list_del(&l->link);
	else
		list_init(&l->link);
}
