// SPDX-License-Identifier: Apache-2.0
/*
 * Finds stalled calls. A silent call may compute, sleep or wait for the network; then its VM works
 * or its guest's agent answers. If neither is the case, a report goes to the log, once for each
 * call. Few sandboxes are inspected at a time; the rest wait once more.
 */
#include <stdio.h>

#include "orchestrator/exec/internal.h"
#include "orchestrator/vm/inspector.h"

#define STALL_MS 30000
#define WAIT_MAX (20 * STALL_MS) /* between two inspections of a guest that answers */

static void wait_on(struct exec_lane *lane, uint32_t ms)
{
	struct stall_watch *stall = &lane->stall;

	stall->period_ms = ms;
	loop_timer_set(lane->sandbox->service->loop, &stall->timer,
		       vmproc_progress_begin(&stall->progress, ms));
}

static void on_inspected(void *arg, const struct inspected *found)
{
	struct exec_lane *lane = arg;
	struct sandbox *s = lane->sandbox;
	struct stall_watch *stall = &lane->stall;
	char what[SANDBOX_ID_LEN + 64];

	stall->inspection = NULL;
	if (stall->heard || (found->vm_answers && found->agent_answers) ||
	    vmproc_progressed(&stall->progress, s->pid, VM_GUEST_WORKS)) {
		stall->wait_ms = stall->wait_ms < WAIT_MAX ? 2 * stall->wait_ms : WAIT_MAX;
		wait_on(lane, stall->wait_ms);
		return;
	}
	snprintf(what, sizeof(what), "a call in sandbox %s", s->id);
	s->service->template_env.inspector->log(s->service, what, found->text);
}

static void on_timer(void *arg)
{
	struct exec_lane *lane = arg;
	struct sandbox *s = lane->sandbox;
	struct stall_watch *stall = &lane->stall;

	bool first = !stall->progress.measured;
	bool worked = vmproc_progressed(&stall->progress, s->pid, VM_GUEST_WORKS);

	if (first) {
		loop_timer_set(s->service->loop, &stall->timer, stall->period_ms);
		return;
	}
	if (stall->heard || s->state == SBX_FREEZING || !exec_lane_runs(lane)) {
		stall->heard = false;
		stall->wait_ms = STALL_MS;
		wait_on(lane, STALL_MS);
	} else if (worked) {
		wait_on(lane, STALL_MS);
	} else {
		stall->inspection = s->service->template_env.inspector->start(s->service, s->vm, s,
									      on_inspected, lane);
		if (!stall->inspection)
			wait_on(lane, STALL_MS);
	}
}

void stall_begin(struct exec_lane *lane)
{
	stall_end(lane);
	lane->stall.timer = (struct loop_timer){.fn = on_timer, .arg = lane};
	lane->stall.heard = false;
	lane->stall.wait_ms = STALL_MS;
	wait_on(lane, STALL_MS);
}

void stall_begin_all(struct sandbox *s)
{
	EACH_LANE (lane, s)
		if (exec_lane_runs(lane))
			stall_begin(lane);
}

void stall_heard(struct exec_lane *lane)
{
	lane->stall.heard = true;
}

void stall_end(struct exec_lane *lane)
{
	struct service *c = lane->sandbox->service;

	loop_timer_clear(c->loop, &lane->stall.timer);
	c->template_env.inspector->cancel(lane->stall.inspection);
	lane->stall.inspection = NULL;
}
