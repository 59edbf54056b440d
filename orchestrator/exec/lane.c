// SPDX-License-Identifier: Apache-2.0
/*
 * Lanes: the queues of calls of the interpreters in a guest, each with a connection to the agent.
 * The guest alone knows which contexts exist, so the lane of a context is made when a call names
 * the context, and freed some time after its last call.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/log.h"
#include "orchestrator/exec/internal.h"
#include "orchestrator/sandbox/op.h"

#define DIAL_LIMIT_MS 30000
#define IDLE_MS	      10000 /* the connection is kept for the next call */

static const struct guest_link_events link_events;

void lane_init(struct exec_lane *lane, struct sandbox *s, const struct guest_link_events *events)
{
	lane->sandbox = s;
	guest_link_init(&lane->guest, s->service->loop, events, lane);
}

static void lane_free(struct exec_lane *lane)
{
	stall_end(lane);
	ops_free(&lane->calls);
	loop_timer_clear(lane->sandbox->service->loop, &lane->idle);
	guest_link_close(&lane->guest);
	exec_lane_sent(lane);
	list_del(&lane->link);
	free(lane);
}

/* Frees the lane, unless calls have come meanwhile. They may still wait, since none starts while
 * the sandbox is frozen or adopted. */
static void on_idle(void *arg)
{
	struct exec_lane *lane = arg;

	if (list_empty(&lane->calls))
		lane_free(lane);
}

static struct exec_lane *lane_new(struct sandbox *s, const char *context)
{
	struct exec_lane *lane = must_alloc(sizeof(*lane));

	lane_init(lane, s, &link_events);
	memcpy(lane->context, context, strnlen(context, AGENT_ID_LEN));
	/* A call may run in this context already: an earlier instance of the service began it, or
	 * it was copied with the guest. */
	lane->guest_busy = true;
	lane->idle = (struct loop_timer){.fn = on_idle, .arg = lane};
	list_add_tail(&exec_of(s)->lanes, &lane->link);
	loop_timer_set(s->service->loop, &lane->idle, IDLE_MS);
	return lane;
}

static struct exec_lane *find(const struct sandbox *s, const char *context)
{
	list_each_of (lane, struct exec_lane, link, &exec_of(s)->lanes)
		if (strcmp(lane->context, context) == 0)
			return lane;
	return NULL;
}

/* Frees a lane without calls. Returns false when all have calls. */
static bool free_one(struct sandbox *s)
{
	list_each_of (lane, struct exec_lane, link, &exec_of(s)->lanes) {
		if (!list_empty(&lane->calls))
			continue;
		lane_free(lane);
		return true;
	}
	return false;
}

struct exec_lane *lane_of(struct sandbox *s, const char *context, struct failure *f)
{
	if (!context || !context[0])
		return &exec_of(s)->main;
	struct exec_lane *lane = find(s, context);
	if (lane)
		return lane;
	if (list_count(&exec_of(s)->lanes) < LANES_MAX || free_one(s))
		return lane_new(s, context);
	failure_set(f, FAIL_TOO_MANY, 1,
		    "calls for %d contexts are queued in this sandbox, which is the limit",
		    LANES_MAX);
	return NULL;
}

struct exec_lane *lane_after(const struct exec_lane *lane)
{
	const struct list *lanes = &exec_of(lane->sandbox)->lanes;
	struct list *next = list_next(lane->context[0] ? &lane->link : lanes);

	return next == lanes ? NULL : container_of(next, struct exec_lane, link);
}

void lane_left(struct exec_lane *lane)
{
	lane->running = false;
	if (!list_empty(&lane->calls))
		return;
	lane->known = false;
	loop_timer_set(lane->sandbox->service->loop, &lane->idle, IDLE_MS);
}

/* --- the connection of a context ------------------------------------------------------------ */

void lane_dial(struct exec_lane *lane)
{
	if (list_empty(&lane->calls))
		return;
	loop_timer_clear(lane->sandbox->service->loop, &lane->idle);
	if (!lane->guest.agent && !lane->guest.dial)
		guest_link_dial(&lane->guest, lane->sandbox->vm, DIAL_LIMIT_MS, false);
}

/* Handles the loss of the connection. Whether the VM lives is unknown until it accepts a new one:
 * then exec_lane_reached asks for the rest of the running call. */
static void disconnected(struct exec_lane *lane)
{
	exec_lane_sent(lane);
	lane->guest_busy = true;
	sandbox_schedule(lane->sandbox);
}

void lane_lose(struct exec_lane *lane, const char *reason)
{
	if (!lane->context[0]) {
		main_lane_lose(lane, reason);
		return;
	}
	if (reason)
		log_warn("sandbox %s: connection to its agent for context %s lost: %s",
			 lane->sandbox->id, lane->context, reason);
	guest_link_hang_up(&lane->guest);
	disconnected(lane);
}

static void on_reached(void *arg)
{
	struct exec_lane *lane = arg;

	exec_lane_reached(lane);
	sandbox_schedule(lane->sandbox);
}

static void on_lost(void *arg, enum guest_lost how, const char *text)
{
	struct exec_lane *lane = arg;

	if (how == GUEST_BROKEN) {
		disconnected(lane);
		return;
	}
	if (how == GUEST_UNREACHED && !vmproc_is_running(lane->sandbox->vm))
		return; /* the sandbox ends soon */
	while (!list_empty(&lane->calls))
		exec_lane_fail(lane, FAIL_AGENT_LOST, text);
}

void lane_on_sent(void *arg)
{
	struct exec_lane *lane = arg;

	exec_lane_sent(lane);
	/* A guest can end a call before it has received all of it. */
	if (!exec_lane_runs(lane))
		sandbox_schedule(lane->sandbox);
}

static const struct guest_link_events link_events = {
	.reached = on_reached,
	.frame = exec_on_frame,
	.lost = on_lost,
	.sent = lane_on_sent,
};

/* --- sandboxes ------------------------------------------------------------------------------ */

/* Ends what the lane has in its VM, which the sandbox loses. Queued calls stay. */
static void leave_vm(struct exec_lane *lane, const struct failure *f)
{
	if (lane->running)
		exec_lane_fail(lane, f->code, f->text);
	guest_link_close(&lane->guest);
	exec_lane_sent(lane);
	lane->guest_busy = true;
}

static void move(struct exec_lane *lane, struct sandbox *to)
{
	struct exec_lane *there = find(to, lane->context);

	lane->sandbox = to;
	list_del(&lane->link);
	list_add_tail(&exec_of(to)->lanes, &lane->link);
	if (!there)
		return;
	exec_append_calls(lane, there);
	lane_free(there);
}

void lanes_move(struct sandbox *from, struct sandbox *to, const struct failure *f)
{
	list_each_of_safe (lane, struct exec_lane, link, &exec_of(to)->lanes)
		leave_vm(lane, f);
	list_each_of_safe (lane, struct exec_lane, link, &exec_of(from)->lanes)
		move(lane, to);
}

void lanes_free(struct sandbox *s)
{
	list_drain_of (lane, struct exec_lane, link, &exec_of(s)->lanes)
		lane_free(lane);
}
