// SPDX-License-Identifier: Apache-2.0
/* Terminals of a guest. Its agent runs them and keeps their output. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/num.h"
#include "base/random.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"

#define TIMEOUT_MS	 30000
#define START_TIMEOUT_MS 9000 /* the published client waits 10 s for a new terminal */
#define SILENCE_MS	 5000 /* a read waits at least this long for the agent's first answer */
#define GATHER_MS	 5    /* output this soon after the first bytes is returned too */
#define LIST_MAX	 256  /* AGENT_PROC_MAX, which a correct guest never exceeds */

static const struct guest_op_kind plain_kind = {.timeout_ms = TIMEOUT_MS,
						.missing_code = FAIL_NO_SUCH_PTY};

struct core_call *core_pty_resize(struct core *c, const char *tenant, const char *id,
				  const char *pty, uint32_t cols, uint32_t rows, core_done_fn *fn,
				  void *arg)
{
	struct guest_op *op = guest_op_new_plain(c, &plain_kind, fn, arg);
	const struct agent_process_request request = {.type = AGENT_PTY_RESIZE,
						      .id = pty,
						      .cols = (uint16_t)cols,
						      .rows = (uint16_t)rows};

	return guest_op_start(op, tenant, id, agent_process_bytes(&request, &op->bytes, &op->len));
}

struct core_call *core_pty_kill(struct core *c, const char *tenant, const char *id, const char *pty,
				core_done_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new_plain(c, &plain_kind, fn, arg);
	const struct agent_process_request request = {.type = AGENT_PTY_KILL, .id = pty};

	return guest_op_start(op, tenant, id, agent_process_bytes(&request, &op->bytes, &op->len));
}

/* --- start ---------------------------------------------------------------------------------- */

static int encode_kill(struct guest_op *by, const char *id)
{
	const struct agent_process_request request = {.type = AGENT_PTY_KILL, .id = id};

	return agent_process_bytes(&request, &by->bytes, &by->len);
}

static int undo_start(struct guest_op *op, struct guest_op *by)
{
	return encode_kill(by, container_of(op, struct id_op, op)->id);
}

static void on_start_refused(struct guest_op *op, uint32_t errnum, const char *text)
{
	bool full = errnum == EAGAIN || errnum == EMFILE || errnum == ENFILE;

	guest_op_fail(op, full ? FAIL_TOO_MANY : FAIL_PTY_FAILED, "%s", text);
}

static void on_start_done(struct guest_op *op)
{
	guestops_of_core(op->call->core)->ptys += !op->call->abandoned;
	id_op_done(op);
}

static const struct guest_op_kind start_kind = {
	.timeout_ms = START_TIMEOUT_MS,
	.undo = undo_start,
	.done = on_start_done,
	.refused = on_start_refused,
	.notify = id_op_notify,
};

struct core_call *core_pty_start(struct core *c, const char *tenant, const char *id,
				 const struct pty_spec *spec, core_id_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new(c, &start_kind, sizeof(struct id_op), arg);
	struct id_op *o = container_of(op, struct id_op, op);
	struct failure ignored;
	struct sandbox *s = sandbox_find(c, tenant, id, &ignored);
	const struct agent_process_request request = {
		.type = AGENT_PTY_START,
		.id = o->id,
		.cols = (uint16_t)spec->cols,
		.rows = (uint16_t)spec->rows,
		.cwd = spec->cwd,
		.label = spec->label,
		.argv = spec->argv,
		.env = {s ? s->env_list : NULL, spec->env},
	};

	o->fn = fn;
	random_id(o->id, sizeof(o->id), "pty_");
	return guest_op_start(op, tenant, id, agent_process_bytes(&request, &op->bytes, &op->len));
}

/* --- input --------------------------------------------------------------------------------------
 */

static const struct guest_op_kind input_kind = {
	.timeout_ms = TIMEOUT_MS,
	.impatient_code = FAIL_PTY_FULL,
	.missing_code = FAIL_NO_SUCH_PTY,
	.done = input_op_done,
};

struct core_call *core_pty_input(struct core *c, const char *tenant, const char *id,
				 const char *pty, const void *data, size_t len, core_done_fn *fn,
				 void *arg)
{
	struct guest_op *op = guest_op_new(c, &input_kind, sizeof(struct input_op), arg);
	struct input_op *o = container_of(op, struct input_op, op);

	op->call->done_fn = fn;
	o->type = AGENT_PTY_INPUT;
	o->sent = &guestops_of_core(c)->pty_bytes_in;
	return input_op_start(o, tenant, id, pty, data, len);
}

/* --- attach --------------------------------------------------------------------------------- */

struct attach_op {
	struct guest_op op;
	struct pty_sink sink;
	char id[CORE_ID_LEN + 1];
	/* The op lists the terminals first, since attaching to a silent terminal has no answer. */
	bool looking, found;
	unsigned n;	/* terminals listed so far */
	uint64_t place; /* requested offset; then the end of the received output */
	int exit_code;
};

/* Counts output. Returns false when the guest broke the protocol; the op has failed then. */
static bool note_bytes(struct guest_op *op, const struct agent_frame *frame, uint64_t *place)
{
	if (frame->place < *place) {
		guest_op_fail_rules(op);
		return false;
	}
	*place = frame->place + frame->len;
	guestops_of_core(op->call->core)->pty_bytes_out += frame->len;
	return true;
}

static int encode_attach(struct guest_op *op, const char *pty, uint64_t place)
{
	const struct agent_process_request request = {
		.type = AGENT_PTY_ATTACH, .id = pty, .place = place};

	return agent_process_bytes(&request, &op->bytes, &op->len);
}

static void on_listed(struct attach_op *o, const struct agent_frame *frame)
{
	if (frame->type != AGENT_PTY || ++o->n > LIST_MAX)
		guest_op_fail_rules(&o->op);
	else if (!memcmp(frame->pty.id, o->id, CORE_ID_LEN))
		o->found = true;
}

static void on_attach_done(struct guest_op *op)
{
	struct attach_op *o = container_of(op, struct attach_op, op);
	uint64_t place = o->place;

	if (!o->looking) {
		guest_op_fail_rules(op);
	} else if (!o->found) {
		guest_op_fail(op, FAIL_NO_SUCH_PTY, "there is no terminal %s in this sandbox",
			      o->id);
	} else {
		o->looking = false;
		o->place = 0;
		guest_op_next(op, encode_attach(op, o->id, place));
		if (!op->call->failed)
			o->sink.found(op->call->arg);
	}
}

/* Handles the frame after the output, which must be AGENT_EXIT. Returns false when it is not: the
 * op has failed then. */
static bool on_exit_frame(struct guest_op *op, const struct agent_frame *frame, int *code)
{
	if (frame->type != AGENT_EXIT) {
		guest_op_fail_rules(op);
		return false;
	}
	*code = frame->exit_code;
	guest_op_succeed(op);
	return true;
}

static void on_attach_frame(struct guest_op *op, const struct agent_frame *frame)
{
	struct attach_op *o = container_of(op, struct attach_op, op);

	if (o->looking) {
		on_listed(o, frame);
	} else if (frame->type == AGENT_PTY_BYTES) {
		if (note_bytes(op, frame, &o->place) && frame->len)
			o->sink.bytes(op->call->arg, frame->place, frame->data, frame->len);
	} else {
		on_exit_frame(op, frame, &o->exit_code);
	}
}

static void attach_notify(struct core_call *call)
{
	struct attach_op *o = container_of(guest_op_of(call), struct attach_op, op);

	if (call->abandoned)
		return;
	if (call->failed)
		o->sink.failed(call->arg, &call->failure);
	else
		o->sink.exited(call->arg, o->exit_code);
}

static int encode_kill_of_attach(struct guest_op *op, struct guest_op *by)
{
	return encode_kill(by, container_of(op, struct attach_op, op)->id);
}

static const struct guest_op_kind attach_kind = {
	.listens = true,
	.missing_code = FAIL_NO_SUCH_PTY,
	.frame = on_attach_frame,
	.done = on_attach_done,
	.notify = attach_notify,
	.hang_up = encode_kill_of_attach,
};

struct core_call *core_pty_attach(struct core *c, const char *tenant, const char *id,
				  const char *pty, uint64_t place, const struct pty_sink *sink,
				  void *arg)
{
	struct guest_op *op = guest_op_new(c, &attach_kind, sizeof(struct attach_op), arg);
	struct attach_op *o = container_of(op, struct attach_op, op);

	o->sink = *sink;
	snprintf(o->id, sizeof(o->id), "%s", pty);
	o->looking = sink->found != NULL;
	if (!o->looking)
		return guest_op_start(op, tenant, id, encode_attach(op, pty, place));
	o->place = place;
	return guest_op_start(op, tenant, id,
			      agent_plain_bytes(AGENT_PTY_LIST, &op->bytes, &op->len));
}

/* --- read: an attach with a time limit ------------------------------------------------------ */

struct read_op {
	struct guest_op op;
	core_pty_read_fn *fn;
	struct loop_timer limit; /* of the read, then for bytes that follow the first ones */
	uint64_t until_ms;
	bool answered; /* the agent has sent its first frame, with the output so far */
	uint8_t *data;
	size_t len, max;
	uint64_t next;
	bool exited;
	int exit_code;
};

static struct read_op *read_of(struct guest_op *op)
{
	return container_of(op, struct read_op, op);
}

static void on_limit(void *arg)
{
	struct read_op *o = arg;

	if (o->op.sandbox)
		guest_op_enough(&o->op);
}

static void on_first_bytes(struct read_op *o, bool silent)
{
	struct loop *loop = o->op.call->core->loop;
	uint64_t now = loop_now_ms(loop);

	o->answered = true;
	if (silent)
		loop_timer_set(loop, &o->limit, o->until_ms > now ? o->until_ms - now : 0);
}

/* Appends output that is contiguous with the output so far. A gap ends this read; the next read
 * begins after it. */
static void on_read_bytes(struct read_op *o, const struct agent_frame *frame)
{
	uint64_t next = o->len ? o->next : 0;
	size_t len = min_u64(frame->len, o->max - o->len);

	if (!note_bytes(&o->op, frame, &next))
		return;
	if (o->len && frame->place != o->next) {
		guest_op_enough(&o->op);
		return;
	}
	if (!o->answered)
		on_first_bytes(o, !len);
	if (!o->len && len)
		loop_timer_set(o->op.call->core->loop, &o->limit, GATHER_MS);
	memcpy(o->data + o->len, frame->data, len);
	o->len += len;
	o->next = frame->place + len;
	if (o->len == o->max && len < frame->len)
		guest_op_enough(&o->op);
}

static void on_read_frame(struct guest_op *op, const struct agent_frame *frame)
{
	struct read_op *o = read_of(op);

	if (frame->type == AGENT_PTY_BYTES)
		on_read_bytes(o, frame);
	else
		o->exited = on_exit_frame(op, frame, &o->exit_code);
}

static void read_notify(struct core_call *call)
{
	struct read_op *o = read_of(guest_op_of(call));
	const struct pty_output out = {.data = o->data,
				       .len = o->len,
				       .next = o->next,
				       .exited = o->exited,
				       .exit_code = o->exit_code};

	if (!call->abandoned)
		o->fn(call->arg, call->failed ? NULL : &out, call->failed ? &call->failure : NULL);
}

static void read_fini(struct guest_op *op)
{
	loop_timer_clear(op->call->core->loop, &read_of(op)->limit);
	free(read_of(op)->data);
}

static const struct guest_op_kind read_kind = {
	.listens = true,
	.missing_code = FAIL_NO_SUCH_PTY,
	.frame = on_read_frame,
	.done = guest_op_fail_rules,
	.notify = read_notify,
	.fini = read_fini,
};

struct core_call *core_pty_read(struct core *c, const char *tenant, const char *id, const char *pty,
				const struct pty_read *read, core_pty_read_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new(c, &read_kind, sizeof(struct read_op), arg);
	struct read_op *o = read_of(op);
	int ret = encode_attach(op, pty, read->place);

	o->fn = fn;
	o->max = read->max_bytes;
	o->next = read->place;
	o->data = malloc(o->max); /* its pages are allocated when they are written */
	if (!o->data)
		ret = -ENOMEM;
	struct core_call *call = guest_op_start(op, tenant, id, ret);
	o->until_ms = loop_now_ms(c->loop) + read->timeout_ms;
	o->limit = (struct loop_timer){.fn = on_limit, .arg = o};
	if (op->sandbox)
		loop_timer_set(c->loop, &o->limit,
			       read->timeout_ms > SILENCE_MS ? read->timeout_ms : SILENCE_MS);
	return call;
}

/* --- list ----------------------------------------------------------------------------------- */

struct list_op {
	struct guest_op op;
	struct pty_list_sink sink;
	unsigned n;
};

static void on_list_frame(struct guest_op *op, const struct agent_frame *frame)
{
	struct list_op *o = container_of(op, struct list_op, op);
	const struct agent_pty *p = &frame->pty;
	struct pty_view view;

	if (frame->type != AGENT_PTY || ++o->n > LIST_MAX) {
		guest_op_fail_rules(op);
		return;
	}
	view = (struct pty_view){.label = (const char *)p->label,
				 .label_len = p->label_len,
				 .started_at_ms = p->started_ms,
				 .ended = p->ended,
				 .exit_code = p->exit_code};
	memcpy(view.id, p->id, CORE_ID_LEN);
	o->sink.pty(op->call->arg, &view);
}

static void list_notify(struct core_call *call)
{
	struct list_op *o = container_of(guest_op_of(call), struct list_op, op);

	if (!call->abandoned)
		o->sink.ended(call->arg, call->failed ? &call->failure : NULL);
}

static const struct guest_op_kind list_kind = {
	.timeout_ms = TIMEOUT_MS,
	.missing_code = FAIL_NO_SUCH_PTY,
	.frame = on_list_frame,
	.notify = list_notify,
};

struct core_call *core_pty_list(struct core *c, const char *tenant, const char *id,
				const struct pty_list_sink *sink, void *arg)
{
	struct guest_op *op = guest_op_new(c, &list_kind, sizeof(struct list_op), arg);

	container_of(op, struct list_op, op)->sink = *sink;
	return guest_op_start(op, tenant, id,
			      agent_plain_bytes(AGENT_PTY_LIST, &op->bytes, &op->len));
}
