// SPDX-License-Identifier: Apache-2.0
/*
 * The default interpreter's lane. Its connection shows whether the guest lives: a VM whose agent
 * can't be reached is ended, with the tenant's work in it.
 */
#include <stdio.h>

#include "base/log.h"
#include "base/num.h"
#include "base/version.h"
#include "orchestrator/exec/internal.h"

/* A VM whose process makes no progress for this time is ended. After a restart of the service all
 * VMs are dialed at once, perhaps on an overloaded host, so the limit is higher then. */
#define DIAL_STALL_MS	15000
#define ADOPT_STALL_MS	60000
#define REDIAL_FIRST_MS 50
#define REDIAL_MAX_MS	10000
#define REDIAL_CALM_MS	60000 /* a connection that lasted this long resets the back-off */

void exec_dial(struct sandbox *s)
{
	struct guest_link *guest = &exec_of(s)->main.guest;
	uint32_t stalled_ms = s->state == SBX_ADOPTING ? ADOPT_STALL_MS : DIAL_STALL_MS;

	if (!guest->dial && !guest->agent)
		guest_link_dial(guest, s->vm, stalled_ms, true);
}

static void redial(void *arg)
{
	exec_dial(arg);
}

/* Schedules a new connection. A guest can break each one as soon as it is made, so only the first
 * is attempted at once; then the delay doubles. */
static void redial_soon(struct exec_lane *lane)
{
	struct loop *loop = lane->sandbox->service->loop;
	uint64_t now = loop_now_ms(loop);

	/* A call can lose the connection again before the new one is due. */
	if (loop_timer_is_set(&lane->redial))
		return;
	if (!lane->lost_ms || now - lane->lost_ms > REDIAL_CALM_MS)
		lane->redial_ms = 0;
	lane->lost_ms = now;
	loop_timer_start(loop, &lane->redial, redial, lane->sandbox, lane->redial_ms);
	lane->redial_ms = backoff_next(lane->redial_ms, REDIAL_FIRST_MS, REDIAL_MAX_MS);
}

/* Reconnects before the next call, which then need not wait for a handshake. The new connection
 * fails if the VM is dead, and succeeds if only the old connection broke. */
void main_lane_lose(struct exec_lane *lane, const char *reason)
{
	log_warn("sandbox %s: connection to its agent lost: %s", lane->sandbox->id, reason);
	guest_link_hang_up(&lane->guest);
	exec_lane_sent(lane);
	lane->guest_busy = true;
	redial_soon(lane);
}

void main_lane_close(struct exec_lane *lane)
{
	loop_timer_clear(lane->sandbox->service->loop, &lane->redial);
	guest_link_close(&lane->guest);
	exec_lane_sent(lane);
}

static void usable(struct exec_lane *lane)
{
	sandbox_step(lane->sandbox, SBX_REACHED);
	exec_lane_reached(lane);
	sandbox_schedule(lane->sandbox);
}

/* Handles the answer to AGENT_HELLO: another Ramet may have built the agent in an adopted VM. */
static void on_hello(struct exec_lane *lane, const struct agent_frame *frame)
{
	struct err e;

	if (frame->type != AGENT_PONG)
		main_lane_lose(lane, "it did not answer with its version");
	else if (version_check("the agent in its guest", frame->version, AGENT_VERSION_OLDEST,
			       AGENT_VERSION, &e) < 0)
		sandbox_vm_died(lane->sandbox, e.text);
	else
		usable(lane);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct exec_lane *lane = arg;

	if (lane->sandbox->state == SBX_ADOPTING)
		on_hello(lane, frame);
	else
		exec_on_frame(lane, frame);
}

static void on_reached(void *arg)
{
	struct exec_lane *lane = arg;

	if (lane->sandbox->state == SBX_ADOPTING)
		guest_link_send_plain(&lane->guest, AGENT_HELLO);
	else
		usable(lane);
}

static void on_lost(void *arg, enum guest_lost how, const char *text)
{
	struct exec_lane *lane = arg;
	char reason[ERR_TEXT_MAX];

	if (how == GUEST_BROKEN) {
		main_lane_lose(lane, text);
		return;
	}
	if (how == GUEST_UNREACHED && !vmproc_is_running(lane->sandbox->vm))
		return; /* the VM's owner is notified next */
	snprintf(reason, sizeof(reason), "can't connect to its guest: %.180s", text);
	sandbox_vm_died(lane->sandbox, reason);
}

static const struct guest_link_events link_events = {
	.reached = on_reached,
	.frame = on_frame,
	.lost = on_lost,
	.sent = lane_on_sent,
};

void main_lane_init(struct exec_lane *lane, struct sandbox *s)
{
	lane_init(lane, s, &link_events);
}
