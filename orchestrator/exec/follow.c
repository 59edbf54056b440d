// SPDX-License-Identifier: Apache-2.0
/* Streams a sandbox's events to a reader that reconnects: first those in the replay buffer, then
 * new ones, until no call is running or queued. A slow reader misses events that leave the replay
 * buffer meanwhile; it does not delay the sandbox. */

#include "base/elements.h"
#include "orchestrator/exec/exec.h"
#include "orchestrator/exec/internal.h"
#include "orchestrator/sandbox/op.h"

#define FOLLOWS_MAX 64

struct follow {
	struct op op;
	struct follow_sink sink;
	struct sandbox *sandbox; /* valid until the call has failed */
	uint64_t since;		 /* sequence number of the last event sent */
	bool started, paused, sending, over;
};

static struct follow *follow_of(const struct op *op)
{
	return container_of(op, struct follow, op);
}

static void send_news(void *arg)
{
	struct op *op = arg;
	struct follow *f = follow_of(op);
	const char *traceparent;
	const struct event *ev;

	f->sending = true;
	if (!f->started)
		f->sink.started(op->arg);
	f->started = true;
	while (!f->paused && !op->abandoned && !op->failed &&
	       (ev = replay_after(&exec_of(f->sandbox)->replay, f->since, &traceparent))) {
		f->since = ev->seq;
		f->sink.event(op->arg, ev, traceparent);
	}
	f->sending = false;
	if (op->abandoned) {
		op_free(op);
	} else if (!f->paused && !op->failed && !exec_of(f->sandbox)->n_calls) {
		f->over = true;
		op_finish(op, NULL);
	}
}

/* Schedules the delivery for the loop's next turn, so that it never happens inside the callback of
 * an event, and all events of a frame are delivered together. */
void follow_news(struct sandbox *s)
{
	list_each_of (op, struct op, link, &exec_of(s)->follows)
		deferred_run(&s->service->deferred, &op->deferred, send_news, op);
}

static bool may_follow(const struct sandbox *s, struct failure *f)
{
	if (list_count(&exec_of(s)->follows) < FOLLOWS_MAX)
		return true;
	failure_set(f, FAIL_TOO_MANY, 1, "%d readers follow this sandbox, which is the limit",
		    FOLLOWS_MAX);
	return false;
}

static void follow_set_paused(struct op *op, bool paused)
{
	struct follow *f = follow_of(op);

	if (op->failed || f->over || f->paused == paused)
		return;
	f->paused = paused;
	if (!paused)
		deferred_run(&op->service->deferred, &op->deferred, send_news, op);
}

static void follow_abandon(struct op *op)
{
	op->abandoned = true;
	if (!follow_of(op)->sending)
		op_free(op);
}

static const struct op_methods follow_ops = {
	.size = sizeof(struct follow),
	.passive = true,
	.abandon = follow_abandon,
	.set_paused = follow_set_paused,
};

struct op *service_follow(struct service *c, const char *tenant, const char *id, uint64_t since,
			  const struct follow_sink *sink, void *arg)
{
	struct follow *f = follow_of(op_new(c, &follow_ops, arg));
	struct failure failure;

	f->sink = *sink;
	f->op.done_fn = sink->ended;
	f->since = since;
	struct sandbox *s = sandbox_find(c, tenant, id, &failure);
	if (!s || !may_follow(s, &failure))
		return op_finish(&f->op, &failure);
	f->sandbox = s;
	list_add_tail(&exec_of(s)->follows, &f->op.link);
	deferred_run(&c->deferred, &f->op.deferred, send_news, &f->op);
	return &f->op;
}

/* --- replay ---------------------------------------------------------------------------------- */

bool service_replay(struct service *c, const char *tenant, const char *id, uint64_t since,
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
