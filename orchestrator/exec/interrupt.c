// SPDX-License-Identifier: Apache-2.0
/* Interrupts: each raises KeyboardInterrupt in a call, or sends SIGINT to a Bash call, and uses a
 * connection to the agent of its own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/exec/exec.h"
#include "orchestrator/exec/internal.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"

#define PENDING_MAX	  16
#define DIAL_LIMIT_MS	  30000
#define ANSWER_TIMEOUT_MS 10000

struct interrupt {
	struct op op;
	char context[AGENT_ID_LEN + 1]; /* empty: the default interpreter */
	/* Number of the call to interrupt; 0: whichever call runs. */
	uint64_t number;
	/* The hang-up that is the reason; NULL: a client's request. */
	struct exec_hang_up *hang_up;
	struct guest_link guest;
};

static struct interrupt *interrupt_of(struct op *op)
{
	return container_of(op, struct interrupt, op);
}

static void interrupt_put_away(struct op *op)
{
	struct interrupt *i = interrupt_of(op);

	if (i->hang_up)
		i->hang_up->interrupt = NULL;
	i->hang_up = NULL;
	guest_link_close(&i->guest);
}

static void finish(struct interrupt *i, const char *error_text)
{
	struct failure f;

	failure_set(&f, FAIL_AGENT_ERROR, 0, "the call could not be interrupted: %s",
		    error_text ? error_text : "");
	op_finish(&i->op, error_text ? &f : NULL);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct interrupt *i = arg;
	struct failure f;

	if (i->context[0] && frame->type == AGENT_ERROR && frame->errnum == ENOENT) {
		failure_set(&f, FAIL_NO_SUCH_CONTEXT, 0, "there is no context %s in this sandbox",
			    i->context);
		op_finish(&i->op, &f);
		return;
	}
	if (i->hang_up && frame->type == AGENT_DONE)
		i->hang_up->due = false;
	finish(i, frame->type == AGENT_DONE ? NULL : "the guest's agent refused the interrupt");
}

static void on_lost(void *arg, enum guest_lost reason, const char *text)
{
	finish(arg, text);
}

static void on_late(void *arg)
{
	finish(arg, "the guest's agent did not answer in time");
}

static void on_reached(void *arg)
{
	struct interrupt *i = arg;
	const char *context = i->context[0] ? i->context : NULL;

	if (guest_link_send(&i->guest, agent_interrupt_bytes(context, i->number)))
		guest_link_set_deadline(&i->guest, ANSWER_TIMEOUT_MS);
}

static const struct guest_link_events guest_events = {
	.reached = on_reached,
	.frame = on_frame,
	.lost = on_lost,
	.late = on_late,
};

/* Returns true when the sandbox has PENDING_MAX pending interrupts. Each holds a connection to the
 * guest. */
static bool too_many(const struct sandbox *s)
{
	return list_count(&exec_of(s)->interrupts) >= PENDING_MAX;
}

static const struct op_methods interrupt_ops = {
	.size = sizeof(struct interrupt),
	.put_away = interrupt_put_away,
	.finished = interrupt_put_away,
};

static struct interrupt *begin(struct op *op, struct sandbox *s, const char *context)
{
	struct interrupt *i = interrupt_of(op);

	snprintf(i->context, sizeof(i->context), "%s", context ? context : "");
	list_add_tail(&exec_of(s)->interrupts, &op->link);
	guest_link_init(&i->guest, op->service->loop, &guest_events, i);
	guest_link_dial(&i->guest, s->vm, DIAL_LIMIT_MS, false);
	return i;
}

void interrupt_for_hang_up(struct exec_lane *lane, uint64_t number, struct exec_hang_up *hang_up)
{
	struct op *op = op_new(lane->sandbox->service, &interrupt_ops, NULL);
	struct interrupt *i = begin(op, lane->sandbox, lane->context);

	i->number = number;
	i->hang_up = hang_up;
	hang_up->interrupt = op;
}

struct op *service_interrupt(struct service *c, const char *tenant, const char *id,
			     const char *context, service_done_fn *fn, void *arg)
{
	struct op *op = op_new(c, &interrupt_ops, arg);
	struct failure f;

	op->done_fn = fn;
	struct sandbox *s = sandbox_find(c, tenant, id, &f);
	if (s && s->state == SBX_ADOPTING) {
		failure_set(&f, FAIL_NOT_READY, 1,
			    "the sandbox is being reconnected after a restart of the service");
		s = NULL;
	} else if (s && too_many(s)) {
		failure_set(&f, FAIL_QUEUE_FULL, 1,
			    "%d interrupts are pending for this sandbox already", PENDING_MAX);
		s = NULL;
	}
	if (!s)
		return op_finish(op, &f);
	begin(op, s, context);
	return op;
}
