// SPDX-License-Identifier: Apache-2.0
/* Processes of a guest. Its agent runs them and keeps their output. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/num.h"
#include "base/random.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"

#define TIMEOUT_MS	    30000
#define START_TIMEOUT_MS    20000
#define MUST_RUN_TIMEOUT_MS 9000 /* the published client waits 10 s for a new terminal */
#define SILENCE_MS	    5000 /* how long a read waits at least for output that exists */
/* Output that follows the first bytes within this time is returned with them. */
#define GATHER_MS  5
#define LIST_MAX   AGENT_PROC_MAX
#define TTY_PREFIX "pty_"

static const struct guest_refusal refusals[] = {
	{ENOENT, FAIL_NO_SUCH_PROCESS}, {ESRCH, FAIL_PROCESS_ENDED}, {EPIPE, FAIL_STDIN_CLOSED},
	{ERANGE, FAIL_OUT_OF_RANGE},	{EAGAIN, FAIL_TOO_MANY},     {0, FAIL_AGENT_ERROR},
};
static const struct guest_refusal start_refusals[] = {
	{EAGAIN, FAIL_TOO_MANY},
	{EMFILE, FAIL_TOO_MANY},
	{ENFILE, FAIL_TOO_MANY},
	{0, FAIL_PROCESS_FAILED},
};

/* Returns the counters for the process: the id of one with a tty says so. */
static struct program_counters *counters(const struct guest_op *op, const char *id)
{
	struct guestops_service *c = guestops_of_service(op->base.service);

	return memcmp(id, TTY_PREFIX, strlen(TTY_PREFIX)) == 0 ? &c->terminals : &c->processes;
}

/* --- operations without a result ------------------------------------------------------------ */

static const struct guest_op_kind plain_kind = {.timeout_ms = TIMEOUT_MS, .refusals = refusals};
/* stdin is closed after the input that waits. */
static const struct guest_op_kind close_kind = {
	.timeout_ms = TIMEOUT_MS, .impatient_code = FAIL_STDIN_FULL, .refusals = refusals};

struct op *service_process_do(struct service *c, const char *tenant, const char *id,
			      const struct agent_process_request *request, service_done_fn *fn,
			      void *arg)
{
	bool closes = request->type == AGENT_PROC_CLOSE;
	struct guest_op *op =
		guest_op_new(c, closes ? &close_kind : &plain_kind, sizeof(*op), fn, arg);

	return guest_op_start(op, tenant, id, agent_process_bytes(request));
}

/* --- descriptions --------------------------------------------------------------------------- */

static struct process_view view_of(const struct agent_process *p)
{
	struct process_view view = {.label = (const char *)p->label,
				    .label_len = p->label_len,
				    .user = (const char *)p->user,
				    .user_len = p->user_len,
				    .pid = p->pid,
				    .started_ms = p->started_ms,
				    .total = p->total,
				    .tty = p->flags & AGENT_PROC_TTY,
				    .stdin_open = p->flags & AGENT_PROC_STDIN,
				    .ended = p->ended_ms != 0,
				    .exit = {.code = p->exit_code,
					     .signal = p->signal,
					     .timed_out = p->flags & AGENT_PROC_TIMED_OUT,
					     .ended_ms = p->ended_ms,
					     .total = p->total}};

	memcpy(view.id, p->id, CORE_ID_LEN);
	return view;
}

struct describe_op {
	struct guest_op op;
	struct process_list_sink sink;
	char id[CORE_ID_LEN + 1]; /* of the only process that may be described; empty: any */
	unsigned n;
};

static void on_description(struct guest_op *op, const struct agent_frame *frame)
{
	struct describe_op *o = container_of(op, struct describe_op, op);

	if (frame->type != AGENT_PROC || ++o->n > LIST_MAX ||
	    (o->id[0] && memcmp(frame->process.id, o->id, CORE_ID_LEN) != 0)) {
		guest_op_fail_rules(op);
		return;
	}
	const struct process_view view = view_of(&frame->process);
	if (!op->base.abandoned)
		o->sink.process(op->base.arg, &view);
}

/* A process that was asked for must be described exactly once. */
static void on_described(struct guest_op *op)
{
	const struct describe_op *o = container_of(op, struct describe_op, op);

	if (!o->id[0] || o->n == 1)
		guest_op_succeed(op);
	else
		guest_op_fail_rules(op);
}

static const struct guest_op_kind describe_kind = {
	.timeout_ms = TIMEOUT_MS,
	.frame = on_description,
	.done = on_described,
	.refusals = refusals,
};

static struct describe_op *describe_new(struct service *c, const struct guest_op_kind *kind,
					const struct process_list_sink *sink, void *arg)
{
	struct guest_op *op = guest_op_new(c, kind, sizeof(struct describe_op), sink->ended, arg);
	struct describe_op *o = container_of(op, struct describe_op, op);

	o->sink = *sink;
	return o;
}

struct op *service_process_list(struct service *c, const char *tenant, const char *id,
				const char *process, const struct process_list_sink *sink,
				void *arg)
{
	struct describe_op *o = describe_new(c, &describe_kind, sink, arg);
	const struct agent_process_request request = {.type = AGENT_PROC_STAT, .id = process};

	snprintf(o->id, sizeof(o->id), "%s", process ? process : "");
	return guest_op_start(&o->op, tenant, id,
			      process ? agent_process_bytes(&request)
				      : agent_plain_bytes(AGENT_PROC_LIST));
}

/* --- start ---------------------------------------------------------------------------------- */

/* Encodes a start with a new id, whose prefix says whether the process has a terminal. */
static struct agent_bytes encode_start(struct service *c, const char *tenant, const char *sandbox,
				       const struct process_spec *spec, bool follow,
				       char id[CORE_ID_LEN + 1])
{
	struct failure ignored;
	struct sandbox *s = sandbox_find(c, tenant, sandbox, &ignored);
	unsigned flags = (spec->tty ? AGENT_PROC_TTY : 0u) |
			 (spec->stdin_pipe && !spec->tty ? AGENT_PROC_STDIN : 0u) |
			 (spec->must_run ? AGENT_PROC_MUST_RUN : 0u) |
			 (follow ? AGENT_PROC_FOLLOW : 0u);
	const struct agent_process_request request = {
		.type = AGENT_PROC_START,
		.id = id,
		.flags = (uint8_t)flags,
		.cols = spec->tty ? (uint16_t)spec->cols : 0,
		.rows = spec->tty ? (uint16_t)spec->rows : 0,
		.timeout_ms = spec->timeout_ms,
		.cwd = spec->cwd,
		.user = spec->user,
		.label = spec->label,
		.argv = spec->argv,
		.env = {s ? s->env_list : NULL, spec->env},
	};

	random_id(id, CORE_ID_LEN + 1, spec->tty ? TTY_PREFIX : "prc_");
	return agent_process_bytes(&request);
}

static struct agent_bytes encode_kill(const char *id)
{
	const struct agent_process_request request = {.type = AGENT_PROC_KILL, .id = id};

	return agent_process_bytes(&request);
}

static struct agent_bytes undo_detached(struct guest_op *op)
{
	return encode_kill(container_of(op, struct describe_op, op)->id);
}

static void on_detached_done(struct guest_op *op)
{
	op->made = true;
	counters(op, container_of(op, struct describe_op, op)->id)->started += !op->base.abandoned;
	on_described(op);
}

static const struct guest_op_kind detached_kind = {
	.timeout_ms = START_TIMEOUT_MS,
	.undo = undo_detached,
	.frame = on_description,
	.done = on_detached_done,
	.refusals = start_refusals,
};

static const struct guest_op_kind must_run_kind = {
	.timeout_ms = MUST_RUN_TIMEOUT_MS,
	.undo = undo_detached,
	.frame = on_description,
	.done = on_detached_done,
	.refusals = start_refusals,
};

struct op *service_process_start(struct service *c, const char *tenant, const char *id,
				 const struct process_spec *spec,
				 const struct process_list_sink *sink, void *arg)
{
	const struct guest_op_kind *kind = spec->must_run ? &must_run_kind : &detached_kind;
	struct describe_op *o = describe_new(c, kind, sink, arg);

	return guest_op_start(&o->op, tenant, id, encode_start(c, tenant, id, spec, false, o->id));
}

/* --- streams of output ---------------------------------------------------------------------- */

struct stream_op {
	struct guest_op op;
	struct process_sink sink;
	char id[CORE_ID_LEN + 1];
	bool described;
	uint64_t place; /* end of the received output */
	struct process_exit exit;
};

static struct stream_op *stream_of(struct guest_op *op)
{
	return container_of(op, struct stream_op, op);
}

static struct agent_bytes encode_kill_of_stream(struct guest_op *op)
{
	return encode_kill(stream_of(op)->id);
}

static void on_stream_begins(struct guest_op *op, const struct agent_frame *frame)
{
	struct stream_op *o = stream_of(op);

	if (o->described || memcmp(frame->process.id, o->id, CORE_ID_LEN) != 0) {
		guest_op_fail_rules(op);
		return;
	}
	o->described = true;
	guest_link_clear_deadline(&op->guest);
	if (op->base.abandoned) {
		op->made = true;
		guest_op_enough(op);
		return;
	}
	counters(op, o->id)->started += op->unseen;
	op->unseen = false;
	const struct process_view view = view_of(&frame->process);
	o->sink.started(op->base.arg, &view);
}

static void on_output(struct guest_op *op, const struct agent_frame *frame)
{
	struct stream_op *o = stream_of(op);

	if (frame->place < o->place || !frame->len) {
		guest_op_fail_rules(op);
		return;
	}
	o->place = frame->place + frame->len;
	counters(op, o->id)->bytes_out += frame->len;
	o->sink.bytes(op->base.arg, frame->stream, frame->place, frame->data, frame->len);
}

static void on_stream_frame(struct guest_op *op, const struct agent_frame *frame)
{
	struct stream_op *o = stream_of(op);

	if (frame->type == AGENT_PROC) {
		on_stream_begins(op, frame);
	} else if (o->described && frame->type == AGENT_PROC_BYTES) {
		on_output(op, frame);
	} else if (o->described && frame->type == AGENT_PROC_EXIT) {
		o->exit = (struct process_exit){.code = frame->exit_code,
						.signal = frame->exit.signal,
						.timed_out = frame->exit.timed_out,
						.ended_ms = frame->exit.ended_ms,
						.total = frame->exit.total};
		guest_op_succeed(op);
	} else {
		guest_op_fail_rules(op);
	}
}

static void stream_notify(struct op *base)
{
	struct stream_op *o = stream_of(guest_op_of(base));

	if (base->abandoned)
		return;
	if (base->failed)
		o->sink.failed(base->arg, &base->failure);
	else
		o->sink.exited(base->arg, &o->exit);
}

static const struct guest_op_kind attach_kind = {
	.listens = true,
	.frame = on_stream_frame,
	.done = guest_op_fail_rules,
	.refusals = refusals,
	.notify = stream_notify,
	.hang_up = encode_kill_of_stream,
};

static const struct guest_op_kind run_kind = {
	.timeout_ms = START_TIMEOUT_MS,
	.listens = true,
	.works = true,
	.undo = encode_kill_of_stream,
	.frame = on_stream_frame,
	.done = guest_op_fail_rules,
	.refusals = start_refusals,
	.notify = stream_notify,
	.hang_up = encode_kill_of_stream,
};

static struct stream_op *stream_new(struct service *c, const struct guest_op_kind *kind,
				    const struct process_sink *sink, void *arg)
{
	struct stream_op *o = stream_of(guest_op_new(c, kind, sizeof(struct stream_op), NULL, arg));

	o->sink = *sink;
	return o;
}

struct op *service_process_run(struct service *c, const char *tenant, const char *id,
			       const struct process_spec *spec, const struct process_sink *sink,
			       void *arg)
{
	struct stream_op *o = stream_new(c, &run_kind, sink, arg);
	struct op *base =
		guest_op_start(&o->op, tenant, id, encode_start(c, tenant, id, spec, true, o->id));

	if (o->op.sandbox)
		guest_link_set_deadline(&o->op.guest, START_TIMEOUT_MS);
	return base;
}

static struct agent_bytes encode_attach(struct stream_op *o, const char *process, uint64_t place)
{
	const struct agent_process_request request = {
		.type = AGENT_PROC_ATTACH, .id = process, .place = place};

	snprintf(o->id, sizeof(o->id), "%s", process);
	return agent_process_bytes(&request);
}

struct op *service_process_attach(struct service *c, const char *tenant, const char *id,
				  const char *process, uint64_t place,
				  const struct process_sink *sink, void *arg)
{
	struct stream_op *o = stream_new(c, &attach_kind, sink, arg);

	return guest_op_start(&o->op, tenant, id, encode_attach(o, process, place));
}

/* --- read: an attach with a time limit ------------------------------------------------------ */

struct read_op {
	struct stream_op stream; /* its sink is this operation */
	service_process_read_fn *fn;
	void *arg;
	/* Time limit of the read; later, for bytes that follow the first ones. */
	struct loop_timer limit;
	uint64_t until_ms;
	uint8_t *data;
	size_t len, max;
	uint64_t next;
};

static void on_limit(void *arg)
{
	struct read_op *o = arg;

	if (o->stream.op.sandbox)
		guest_op_enough(&o->stream.op);
}

/* The output so far arrives now. If there is any, extends the time limit, so that it can arrive. */
static void on_read_begins(void *arg, const struct process_view *p)
{
	struct read_op *o = arg;
	struct loop *loop = o->stream.op.base.service->loop;
	uint64_t now = loop_now_ms(loop);

	if (p->total == o->next && !p->ended)
		loop_timer_set(loop, &o->limit, o->until_ms > now ? o->until_ms - now : 0);
}

/* Appends output that is contiguous with the output so far. A gap ends this read; the next read
 * begins after it. */
static void on_read_bytes(void *arg, unsigned stream, uint64_t place, const void *data, size_t len)
{
	struct read_op *o = arg;
	size_t used = min_u64(len, o->max - o->len);

	if (o->len && place != o->next) {
		guest_op_enough(&o->stream.op);
		return;
	}
	if (!o->len)
		loop_timer_set(o->stream.op.base.service->loop, &o->limit, GATHER_MS);
	memcpy(o->data + o->len, data, used);
	o->len += used;
	o->next = place + used;
	if (used < len)
		guest_op_enough(&o->stream.op);
}

static void on_read_end(void *arg, const struct process_exit *x)
{
	struct read_op *o = arg;
	const struct process_output out = {.data = o->data,
					   .len = o->len,
					   .next = o->next,
					   .exited = x->ended_ms != 0,
					   .exit_code = x->code};

	o->fn(o->arg, &out, NULL);
}

static void on_read_failed(void *arg, const struct failure *f)
{
	struct read_op *o = arg;

	o->fn(o->arg, NULL, f);
}

static const struct process_sink read_sink = {
	.started = on_read_begins,
	.bytes = on_read_bytes,
	.exited = on_read_end,
	.failed = on_read_failed,
};

static void read_fini(struct guest_op *op)
{
	struct read_op *o = container_of(stream_of(op), struct read_op, stream);

	loop_timer_clear(op->base.service->loop, &o->limit);
	free(o->data);
}

static const struct guest_op_kind read_kind = {
	.listens = true,
	.frame = on_stream_frame,
	.done = guest_op_fail_rules,
	.refusals = refusals,
	.notify = stream_notify,
	.fini = read_fini,
};

struct op *service_process_read(struct service *c, const char *tenant, const char *id,
				const char *process, const struct process_read *read,
				service_process_read_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new(c, &read_kind, sizeof(struct read_op), NULL, NULL);
	struct read_op *o = container_of(stream_of(op), struct read_op, stream);
	struct agent_bytes request = encode_attach(&o->stream, process, read->place);

	op->base.arg = o;
	o->stream.sink = read_sink;
	o->fn = fn;
	o->arg = arg;
	o->max = read->max_bytes;
	o->next = read->place;
	o->until_ms = loop_now_ms(c->loop) + read->timeout_ms;
	o->limit = (struct loop_timer){.fn = on_limit, .arg = o};
	o->data = malloc(o->max); /* its pages are allocated when they are written */
	if (!o->data)
		request.error = -ENOMEM;
	struct op *base = guest_op_start(op, tenant, id, request);
	if (op->sandbox)
		loop_timer_set(c->loop, &o->limit,
			       read->timeout_ms > SILENCE_MS ? read->timeout_ms : SILENCE_MS);
	return base;
}

/* --- input: one request after the other, until all bytes are sent --------------------------- */

struct input_op {
	struct guest_op op;
	char id[CORE_ID_LEN + 1];
	const uint8_t *input; /* owned by the caller, who keeps it until the end */
	size_t left;
};

static struct agent_bytes encode_input(struct input_op *o)
{
	size_t part = min_u64(o->left, AGENT_INPUT_MAX);
	const struct agent_process_request request = {
		.type = AGENT_PROC_INPUT, .id = o->id, .input = o->input, .input_len = part};

	if (part)
		o->input += part; /* it may be NULL without any input */
	o->left -= part;
	counters(&o->op, o->id)->bytes_in += part;
	return agent_process_bytes(&request);
}

static void on_input_done(struct guest_op *op)
{
	struct input_op *o = container_of(op, struct input_op, op);

	if (o->left)
		guest_op_next(op, encode_input(o));
	else
		guest_op_succeed(op);
}

static const struct guest_op_kind input_kind = {
	.timeout_ms = TIMEOUT_MS,
	.impatient_code = FAIL_STDIN_FULL,
	.done = on_input_done,
	.refusals = refusals,
};

struct op *service_process_input(struct service *c, const char *tenant, const char *id,
				 const char *process, const void *data, size_t len,
				 service_done_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new(c, &input_kind, sizeof(struct input_op), fn, arg);
	struct input_op *o = container_of(op, struct input_op, op);

	snprintf(o->id, sizeof(o->id), "%s", process);
	o->input = data;
	o->left = len;
	return guest_op_start(op, tenant, id, encode_input(o));
}
