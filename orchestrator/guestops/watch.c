// SPDX-License-Identifier: Apache-2.0
/* Watches of files in a guest. They end with their connection: a fork's children have none. */
#include "orchestrator/guestops/guest-op.h"

struct watch_op {
	struct guest_op op;
	struct watch_sink sink;
	bool begun; /* AGENT_WATCHING has come */
};

static struct watch_op *of(struct guest_op *op)
{
	return container_of(op, struct watch_op, op);
}

static void on_event(struct guest_op *op, const struct agent_frame *frame)
{
	struct watch_op *o = of(op);
	const struct agent_change *c = &frame->change;

	if (frame->type != AGENT_EVENT || (c->type == AGENT_WATCHING) == o->begun) {
		guest_op_fail_rules(op);
		return;
	}
	o->begun = true;
	const struct watch_event event = {.type = c->type,
					  .folder = c->folder,
					  .path = (const char *)c->path,
					  .path_len = c->path_len,
					  .to = (const char *)c->to,
					  .to_len = c->to_len};
	o->sink.event(op->base.arg, &event);
}

static void on_done(struct guest_op *op)
{
	if (of(op)->begun)
		guest_op_succeed(op);
	else
		guest_op_fail_rules(op);
}

static const struct guest_op_kind watch_kind = {
	.file = true,
	.listens = true,
	.frame = on_event,
	.done = on_done,
};

struct op *service_file_watch(struct service *c, const char *tenant, const char *id,
			      const char *path, bool recursive, const struct watch_sink *sink,
			      void *arg)
{
	struct guest_op *op =
		guest_op_new(c, &watch_kind, sizeof(struct watch_op), sink->ended, arg);
	const struct agent_file_request request = {
		.type = AGENT_WATCH, .path = path, .flag = recursive};

	of(op)->sink = *sink;
	return guest_op_start(op, tenant, id, agent_file_bytes(&request));
}
