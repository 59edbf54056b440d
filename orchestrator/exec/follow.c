// SPDX-License-Identifier: Apache-2.0
/* Streams a sandbox's events to a reader that reconnects: first those in the replay buffer, then
 * new ones, until no call is running or queued. A slow reader misses events that leave the replay
 * buffer meanwhile; it does not delay the sandbox. */
#include <stdio.h>

#include "orchestrator/exec/exec.h"
#include "orchestrator/exec/internal.h"
#include "orchestrator/sandbox/call.h"

#define FOLLOWS_MAX 64

struct follow {
	struct core_call call;
	struct follow_sink sink;
	struct sandbox *sandbox; /* valid until the call has failed */
	uint64_t since;		 /* sequence number of the last event sent */
	bool started, paused, sending, over;
};

static struct follow *follow_of(const struct core_call *call)
{
	return container_of(call, struct follow, call);
}

static void send_news(void *arg)
{
	struct core_call *call = arg;
	struct follow *f = follow_of(call);
	const char *traceparent;
	const struct event *ev;

	f->sending = true;
	if (!f->started)
		f->sink.started(call->arg);
	f->started = true;
	while (!f->paused && !call->abandoned && !call->failed &&
	       (ev = replay_after(&exec_of(f->sandbox)->replay, f->since, &traceparent))) {
		f->since = ev->seq;
		f->sink.event(call->arg, ev, traceparent);
	}
	f->sending = false;
	if (call->abandoned) {
		call_free(call);
	} else if (!f->paused && !call->failed && !exec_of(f->sandbox)->n_calls) {
		f->over = true;
		call_finish(call, NULL);
	}
}

/* Schedules the delivery for the loop's next turn, so that it never happens inside the callback of
 * an event, and all events of a frame are delivered together. */
void follow_news(struct sandbox *s)
{
	list_each (pos, &exec_of(s)->follows) {
		struct core_call *call = container_of(pos, struct core_call, link);

		deferred_run(&s->core->deferred, &call->deferred, send_news, call);
	}
}

static bool may_follow(const struct sandbox *s, struct failure *f)
{
	if (list_count(&exec_of(s)->follows) < FOLLOWS_MAX)
		return true;
	failure_set(f, FAIL_TOO_MANY, 1, "%d readers follow this sandbox, which is the limit",
		    FOLLOWS_MAX);
	return false;
}

static void follow_set_paused(struct core_call *call, bool paused)
{
	struct follow *f = follow_of(call);

	if (call->failed || f->over || f->paused == paused)
		return;
	f->paused = paused;
	if (!paused)
		deferred_run(&call->core->deferred, &call->deferred, send_news, call);
}

static void follow_abandon(struct core_call *call)
{
	call->abandoned = true;
	if (!follow_of(call)->sending)
		call_free(call);
}

static void follow_notify(struct core_call *call)
{
	if (!call->abandoned)
		follow_of(call)->sink.ended(call->arg, call->failed ? &call->failure : NULL);
}

static const struct call_ops follow_ops = {
	.size = sizeof(struct follow),
	.passive = true,
	.notify = follow_notify,
	.abandon = follow_abandon,
	.set_paused = follow_set_paused,
};

struct core_call *core_follow(struct core *c, const char *tenant, const char *id, uint64_t since,
			      const struct follow_sink *sink, void *arg)
{
	struct follow *f = follow_of(call_new(c, &follow_ops, arg));
	struct failure failure;

	f->sink = *sink;
	f->since = since;
	struct sandbox *s = sandbox_find(c, tenant, id, &failure);
	if (!s || !may_follow(s, &failure)) {
		call_finish(&f->call, &failure);
		return &f->call;
	}
	f->sandbox = s;
	list_add_tail(&exec_of(s)->follows, &f->call.link);
	deferred_run(&c->deferred, &f->call.deferred, send_news, &f->call);
	return &f->call;
}

/* --- replay ---------------------------------------------------------------------------------- */

bool core_replay(struct core *c, const char *tenant, const char *id, uint64_t since,
		 void (*each)(void *arg, const struct event *ev, const char *traceparent),
		 void *arg, struct failure *f)
{
	struct sandbox *s = sandbox_find(c, tenant, id, f);
	const struct event *ev;
	const char *traceparent;

	if (!s)
		return false;
	while ((ev = replay_after(&exec_of(s)->replay, since, &traceparent))) {
		since = ev->seq;
		each(arg, ev, traceparent);
	}
	return true;
}
