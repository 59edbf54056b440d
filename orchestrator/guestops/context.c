// SPDX-License-Identifier: Apache-2.0
/* Contexts of a guest. Its agent runs them; exec/ sends calls to them. */
#include <errno.h>
#include <string.h>

#include "base/random.h"
#include "orchestrator/guestops/guest-op.h"

#define TIMEOUT_MS	 30000
#define START_TIMEOUT_MS 60000 /* an interpreter starts, perhaps on a busy host */
#define LIST_MAX	 64 /* more than AGENT_CONTEXT_MAX, which a correct guest never exceeds */

static const struct guest_refusal refusals[] = {
	{ENOENT, FAIL_NO_SUCH_CONTEXT}, {ENOPKG, FAIL_NOT_INSTALLED}, {ECHILD, FAIL_INTERPRETER},
	{ENOTDIR, FAIL_BAD_PATH},	{EINVAL, FAIL_OUT_OF_RANGE},  {EAGAIN, FAIL_TOO_MANY},
	{EMFILE, FAIL_TOO_MANY},	{ENFILE, FAIL_TOO_MANY},      {0, FAIL_AGENT_ERROR},
};

static const struct guest_op_kind end_kind = {.timeout_ms = TIMEOUT_MS, .refusals = refusals};
static const struct guest_op_kind restart_kind = {.timeout_ms = START_TIMEOUT_MS,
						  .refusals = refusals};

static struct agent_bytes encode(enum agent_request type, const char *context)
{
	const struct agent_context_request request = {.type = type, .id = context};

	return agent_context_bytes(&request);
}

struct op *service_context_do(struct service *c, const char *tenant, const char *id,
			      enum agent_request type, const char *context, service_done_fn *fn,
			      void *arg)
{
	bool ends = type == AGENT_CONTEXT_END;
	struct guest_op *op =
		guest_op_new(c, ends ? &end_kind : &restart_kind, sizeof(*op), fn, arg);

	return guest_op_start(op, tenant, id, encode(type, context));
}

/* --- list ----------------------------------------------------------------------------------- */

struct list_op {
	struct guest_op op;
	struct context_list_sink sink;
	char id[CORE_ID_LEN + 1]; /* of the only context to report; empty: all */
	bool found;		  /* a context was reported */
	unsigned n;		  /* listed so far */
};

static struct list_op *list_of(struct guest_op *op)
{
	return container_of(op, struct list_op, op);
}

static void on_list_frame(struct guest_op *op, const struct agent_frame *frame)
{
	struct list_op *o = list_of(op);
	const struct agent_context *x = &frame->context;
	struct context_view view;

	if (frame->type != AGENT_CONTEXT || ++o->n > LIST_MAX) {
		guest_op_fail_rules(op);
		return;
	}
	if (op->base.abandoned ||
	    (o->id[0] && (o->found || memcmp(x->id, o->id, CORE_ID_LEN) != 0)))
		return;
	o->found = true;
	view = (struct context_view){.language = x->language,
				     .busy = x->busy,
				     .started_at_ms = x->started_ms,
				     .cwd = (const char *)x->cwd,
				     .cwd_len = x->cwd_len};
	memcpy(view.id, x->id, CORE_ID_LEN);
	o->sink.context(op->base.arg, &view);
}

static const struct guest_op_kind list_kind = {
	.timeout_ms = TIMEOUT_MS,
	.refusals = refusals,
	.frame = on_list_frame,
};

struct op *service_context_list(struct service *c, const char *tenant, const char *id,
				const struct context_list_sink *sink, void *arg)
{
	struct guest_op *op = guest_op_new(c, &list_kind, sizeof(struct list_op), sink->ended, arg);

	list_of(op)->sink = *sink;
	return guest_op_start(op, tenant, id, encode(AGENT_CONTEXT_LIST, NULL));
}

/* --- start ---------------------------------------------------------------------------------- */

static struct agent_bytes encode_end(struct guest_op *op)
{
	return encode(AGENT_CONTEXT_END, list_of(op)->id);
}

static void on_start_frame(struct guest_op *op, const struct agent_frame *frame)
{
	if (op->made)
		on_list_frame(op, frame);
	else
		guest_op_fail_rules(op);
}

/* Handles the end of the start, and then the end of a list of contexts. The start is answered from
 * this list, so that the answer is the same as that of later requests. */
static void on_start_done(struct guest_op *op)
{
	bool listed = op->made;

	op->made = true;
	if (op->base.abandoned || list_of(op)->found)
		guest_op_succeed(op);
	else if (listed)
		guest_op_fail(op, FAIL_NO_SUCH_CONTEXT, "context %s has ended already",
			      list_of(op)->id);
	else
		guest_op_next(op, encode(AGENT_CONTEXT_LIST, NULL));
}

static const struct guest_op_kind start_kind = {
	.timeout_ms = START_TIMEOUT_MS,
	.undo = encode_end,
	.frame = on_start_frame,
	.done = on_start_done,
	.refusals = refusals,
};

struct op *service_context_start(struct service *c, const char *tenant, const char *id,
				 const struct context_spec *spec,
				 const struct context_list_sink *sink, void *arg)
{
	struct guest_op *op =
		guest_op_new(c, &start_kind, sizeof(struct list_op), sink->ended, arg);
	struct list_op *o = list_of(op);
	struct failure ignored;
	struct sandbox *s = sandbox_find(c, tenant, id, &ignored);
	const struct agent_context_request request = {
		.type = AGENT_CONTEXT_START,
		.id = o->id,
		.language = spec->language,
		.cwd = spec->cwd,
		.env = {s ? s->env_list : NULL, spec->env},
	};

	o->sink = *sink;
	random_id(o->id, sizeof(o->id), "ctx_");
	return guest_op_start(op, tenant, id, agent_context_bytes(&request));
}
