// SPDX-License-Identifier: Apache-2.0
/* KeyboardInterrupt for the running call, over a connection of its own. */
#include <stdio.h>
#include <string.h>

#include "orchestrator/core/internal.h"

#define WAITING_MAX	   16
#define DIAL_LIMIT_MS	   30000
#define ANSWER_PATIENCE_MS 10000

struct interrupt {
	struct core_call *call;
	struct dial *dial;
	struct agent *agent;
	struct loop_timer patience;
};

void interrupt_free(struct interrupt *i)
{
	if (!i)
		return;
	loop_timer_clear(i->call->core->loop, &i->patience);
	dial_cancel(i->dial);
	agent_free(i->agent);
	free(i);
}

static void finish(struct interrupt *i, const char *trouble)
{
	struct core_call *call = i->call;
	struct failure f;

	failure_set(&f, 500, "agent_error", 0, "the call could not be interrupted: %s",
		    trouble ? trouble : "");
	call_finish(call, trouble ? &f : NULL);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	finish(arg, frame->type == AGENT_DONE ? NULL : "the guest's agent refused it");
}

static void on_ended(void *arg, const char *why)
{
	finish(arg, why);
}

static const struct agent_events events = {.frame = on_frame, .ended = on_ended};

static void on_patience(void *arg)
{
	finish(arg, "the guest's agent did not answer in time");
}

static void on_dialed(void *arg, int fd, const char *text)
{
	struct interrupt *i = arg;
	struct loop *loop = i->call->core->loop;
	uint8_t *bytes = NULL;
	size_t len;

	i->dial = NULL;
	if (fd < 0) {
		finish(i, text);
		return;
	}
	i->agent = agent_new(loop, fd, &events, i);
	if (!i->agent || agent_plain_bytes(AGENT_INTERRUPT, &bytes, &len) < 0) {
		finish(i, "no memory");
		return;
	}
	agent_send(i->agent, bytes, len);
	i->patience = (struct loop_timer){.fn = on_patience, .arg = i};
	loop_timer_set(loop, &i->patience, ANSWER_PATIENCE_MS);
}

/* Each holds a connection to the guest. */
static bool too_many(const struct sandbox *s)
{
	unsigned n = 0;

	list_each (pos, &s->interrupts)
		n++;
	return n >= WAITING_MAX;
}

struct core_call *core_interrupt(struct core *c, const char *tenant, const char *id,
				 core_done_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, CALL_INTERRUPT, arg);
	struct failure f;

	call->done_fn = fn;
	struct sandbox *s = sandbox_find(c, tenant, id, &f);
	if (s && s->state == SBX_ADOPTING) {
		failure_set(&f, 503, "not_ready", 1, "the sandbox is being found again");
		s = NULL;
	} else if (s && too_many(s)) {
		failure_set(&f, 429, "queue_full", 1,
			    "%d interrupts are on their way to this sandbox already", WAITING_MAX);
		s = NULL;
	}
	if (!s) {
		call_finish(call, &f);
		return call;
	}
	struct interrupt *i = must_alloc(sizeof(*i));
	call->interrupt = i;
	i->call = call;
	list_add_tail(&s->interrupts, &call->link);
	i->dial = dial_start(s->vm, DIAL_LIMIT_MS, on_dialed, i);
	return call;
}
