// SPDX-License-Identifier: Apache-2.0
/*
 * Finds stalled calls. A silent call may compute, sleep or wait for the network; then its VM works
 * or its guest's agent answers. If neither is the case, a report goes to the log, once for each
 * call. Few sandboxes are inspected at a time; the rest queue.
 */
#include <stdio.h>

#include "orchestrator/core/inspect.h"

#define STALL_MS 30000
#define WAIT_MAX (20 * STALL_MS) /* between two inspections of a guest that answers */

static void wait_on(struct sandbox *s, uint64_t ms)
{
	vmproc_progress_begin(&s->stall.progress, s->pid);
	loop_timer_set(s->core->loop, &s->stall.timer, ms);
}

static void on_inspected(void *arg, const struct inspected *found)
{
	struct sandbox *s = arg;
	struct stall_watch *stall = &s->stall;
	char what[SANDBOX_ID_LEN + 64];

	stall->inspection = NULL;
	if (stall->heard || (found->vm_answers && found->agent_answers) ||
	    vmproc_progressed(&stall->progress, s->pid, VM_GUEST_WORKS)) {
		stall->wait_ms = stall->wait_ms < WAIT_MAX ? 2 * stall->wait_ms : WAIT_MAX;
		wait_on(s, stall->wait_ms);
		return;
	}
	snprintf(what, sizeof(what), "a call in sandbox %s", s->id);
	stall_log(s->core, what, found->text);
}

static void on_timer(void *arg)
{
	struct sandbox *s = arg;
	struct stall_watch *stall = &s->stall;
	bool worked = vmproc_progressed(&stall->progress, s->pid, VM_GUEST_WORKS);

	if (stall->heard || s->state != SBX_RUNNING) {
		stall->heard = false;
		stall->wait_ms = STALL_MS;
		wait_on(s, STALL_MS);
	} else if (worked) {
		wait_on(s, STALL_MS);
	} else if (inspections_full(s->core)) {
		list_add_tail(&s->core->stall_turns, &stall->turn);
	} else {
		stall->inspection = inspection_start(s->core, s->vm, s, on_inspected, s);
	}
}

/* Inspects queued sandboxes while the limit allows. Checks each again, since its call may have made
 * progress in the queue. */
static void give_turns(void *arg)
{
	struct core *c = arg;

	while (!list_empty(&c->stall_turns) && !inspections_full(c)) {
		struct list *first = c->stall_turns.next;

		list_del(first);
		on_timer(container_of(first, struct sandbox, stall.turn));
	}
}

void stall_next(struct core *c)
{
	if (!list_empty(&c->stall_turns))
		deferred_run(&c->deferred, &c->stall_deferred, give_turns, c);
}

void stall_begin(struct sandbox *s)
{
	stall_end(s);
	s->stall.timer = (struct loop_timer){.fn = on_timer, .arg = s};
	list_init(&s->stall.turn);
	s->stall.heard = false;
	s->stall.wait_ms = STALL_MS;
	wait_on(s, STALL_MS);
}

void stall_end(struct sandbox *s)
{
	loop_timer_clear(s->core->loop, &s->stall.timer);
	if (s->stall.turn.next)
		list_del(&s->stall.turn);
	inspection_cancel(s->stall.inspection);
	s->stall.inspection = NULL;
}

static void fail_side_calls(struct sandbox *s, const struct failure *f)
{
	stall_end(s);
}

const struct sandbox_hooks stall_hooks = {.fail_side_calls = fail_side_calls, .shed = stall_end};
