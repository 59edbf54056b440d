// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "base/clock.h"
#include "base/array.h"
#include "orchestrator/io/loop-internal.h"

static void put(struct timers *t, size_t i, struct loop_timer *timer)
{
	t->at[i] = timer;
	timer->heap_index = i + 1;
}

static void sift_up(struct timers *t, size_t i)
{
	struct loop_timer *timer = t->at[i];

	while (i > 0) {
		size_t parent = (i - 1) / 2;

		if (t->at[parent]->due_ms <= timer->due_ms)
			break;
		put(t, i, t->at[parent]);
		i = parent;
	}
	put(t, i, timer);
}

static void sift_down(struct timers *t, size_t i)
{
	struct loop_timer *timer = t->at[i];

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= t->count)
			break;
		if (child + 1 < t->count && t->at[child + 1]->due_ms < t->at[child]->due_ms)
			child++;
		if (timer->due_ms <= t->at[child]->due_ms)
			break;
		put(t, i, t->at[child]);
		i = child;
	}
	put(t, i, timer);
}

void timers_fini(struct timers *t)
{
	free(t->at);
}

static void heap_insert(struct timers *t, struct loop_timer *timer)
{
	/* A silently lost deadline is worse than a restart. */
	if (array_grow(&t->at, &t->room, t->count + 1, sizeof(struct loop_timer *)) < 0)
		abort();
	t->at[t->count++] = timer;
	sift_up(t, t->count - 1);
}

static void heap_remove(struct timers *t, struct loop_timer *timer)
{
	size_t i = timer->heap_index - 1;
	struct loop_timer *last = t->at[--t->count];

	timer->heap_index = 0;
	if (last == timer)
		return;
	put(t, i, last);
	sift_up(t, i);
	sift_down(t, last->heap_index - 1);
}

int32_t timers_wait_ms(const struct timers *t, uint64_t now_ms)
{
	if (!t->count)
		return INT32_MAX;
	uint64_t due = t->at[0]->due_ms;
	if (due <= now_ms)
		return 0;
	return due - now_ms < INT32_MAX ? (int32_t)(due - now_ms) : INT32_MAX;
}

void timers_run(struct timers *t, uint64_t now_ms)
{
	/* The count bounds the loop, in case a timer sets itself to "now" each time. */
	for (size_t n = t->count; n && t->count && t->at[0]->due_ms <= now_ms; n--) {
		struct loop_timer *timer = t->at[0];

		heap_remove(t, timer);
		timer->fn(timer->arg);
	}
}

uint64_t loop_now_ms(struct loop *l)
{
	return now_ns() / 1000000;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ms)
{
	uint64_t now = loop_now_ms(l);

	loop_timer_clear(l, t);
	t->due_ms = after_ms < UINT64_MAX - now ? now + after_ms : UINT64_MAX;
	heap_insert(&l->timers, t);
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
	if (t->heap_index)
		heap_remove(&l->timers, t);
}
