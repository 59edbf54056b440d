// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/agent/guest-link.h"

static void lose(struct guest_link *l, enum guest_lost reason, const char *text)
{
	guest_link_hang_up(l);
	l->events->lost(l->arg, reason, text);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct guest_link *l = arg;

	l->events->frame(l->arg, frame);
}

static void on_ended(void *arg, const char *reason)
{
	lose(arg, GUEST_BROKEN, reason);
}

static void on_sent(void *arg)
{
	struct guest_link *l = arg;

	if (l->events->sent)
		l->events->sent(l->arg);
}

static const struct agent_events agent_events = {on_frame, on_ended, on_sent};

static void on_dialed(void *arg, int fd, const char *text)
{
	struct guest_link *l = arg;

	l->dial = NULL;
	if (fd < 0) {
		lose(l, GUEST_UNREACHED, text);
		return;
	}
	l->agent = agent_new(l->loop, fd, &agent_events, l);
	if (!l->agent) {
		lose(l, GUEST_NO_MEMORY, "not enough memory for a connection to the guest");
		return;
	}
	if (l->paused)
		agent_pause(l->agent);
	l->events->reached(l->arg);
}

static void on_deadline(void *arg)
{
	struct guest_link *l = arg;

	l->events->late(l->arg);
}

void guest_link_init(struct guest_link *l, struct loop *loop,
		     const struct guest_link_events *events, void *arg)
{
	*l = (struct guest_link){.loop = loop, .events = events, .arg = arg};
	l->deadline = (struct loop_timer){.fn = on_deadline, .arg = l};
}

void guest_link_dial(struct guest_link *l, struct vmproc *vm, uint32_t ms, bool while_working)
{
	l->dial = dial_start(vm, ms, while_working, on_dialed, l);
}

void guest_link_cancel_dial(struct guest_link *l)
{
	dial_cancel(l->dial);
	l->dial = NULL;
}

void guest_link_take(struct guest_link *l, struct agent *agent)
{
	l->agent = agent;
	l->paused = false;
	if (agent)
		agent_set_events(agent, &agent_events, l);
}

struct agent *guest_link_release(struct guest_link *l)
{
	struct agent *agent = l->agent;

	l->agent = NULL;
	return agent;
}

bool guest_link_send(struct guest_link *l, struct agent_bytes request)
{
	if (request.error < 0) {
		lose(l, GUEST_NO_MEMORY, "not enough memory for a request to the guest");
		return false;
	}
	agent_send(l->agent, request);
	return true;
}

bool guest_link_send_plain(struct guest_link *l, enum agent_request type)
{
	return guest_link_send(l, agent_plain_bytes(type));
}

void guest_link_set_deadline(struct guest_link *l, uint64_t ms)
{
	loop_timer_set(l->loop, &l->deadline, ms);
}

void guest_link_clear_deadline(struct guest_link *l)
{
	loop_timer_clear(l->loop, &l->deadline);
}

void guest_link_pause(struct guest_link *l, bool paused)
{
	l->paused = paused;
	if (l->agent && paused)
		agent_pause(l->agent);
	else if (l->agent)
		agent_resume(l->agent);
}

void guest_link_hang_up(struct guest_link *l)
{
	agent_free(l->agent);
	l->agent = NULL;
	l->paused = false;
}

void guest_link_close(struct guest_link *l)
{
	if (!l->loop)
		return;
	guest_link_clear_deadline(l);
	guest_link_cancel_dial(l);
	guest_link_hang_up(l);
}
