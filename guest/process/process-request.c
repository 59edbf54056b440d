// SPDX-License-Identifier: Apache-2.0
#include "guest/process/process-request.h"

#include <errno.h>
#include <string.h>

#define START_FLAGS (AGENT_PROC_TTY | AGENT_PROC_STDIN | AGENT_PROC_FOLLOW | AGENT_PROC_MUST_RUN)

bool process_request_is(uint8_t type)
{
	return (type >= AGENT_PROC_START && type <= AGENT_PROC_STAT && type != AGENT_PROC_LIST) ||
	       type == AGENT_PROC_RESIZE;
}

static int get_size(struct wire *w, struct process_request *out, struct err *e)
{
	bool tty = out->type != AGENT_PROC_START || out->flags & AGENT_PROC_TTY;

	out->cols = wire_get_u16(w);
	out->rows = wire_get_u16(w);
	if (w->bad)
		return 0;
	if (tty && (!out->cols || !out->rows))
		return err_say(e, EPROTO, "process: columns and rows must not be 0");
	if (!tty && (out->cols || out->rows))
		return err_say(e, EPROTO, "process: without a tty, columns and rows must be 0");
	return 0;
}

static int get_args(struct wire *w, struct process_request *out, struct err *e)
{
	size_t len;

	out->argc = wire_get_u32(w);
	if (!w->bad && (!out->argc || out->argc > PROCESS_ARGS_MAX))
		return err_say(e, EPROTO, "process: %u arguments; allowed are 1 to %u", out->argc,
			       PROCESS_ARGS_MAX);
	out->args = w->pos;
	for (uint32_t i = 0; i < out->argc; i++)
		payload_text(w, &len, AGENT_PAYLOAD_MAX);
	return 0;
}

static int get_flags(struct wire *w, struct process_request *out, struct err *e)
{
	out->flags = wire_get_u8(w);
	if (out->flags & ~START_FLAGS)
		return err_say(e, EPROTO, "process: unknown flags %#x", out->flags);
	return 0;
}

static int parse_start(struct wire *w, struct process_request *out, struct err *e)
{
	int bad = get_flags(w, out, e);

	if (!bad)
		bad = get_size(w, out, e);
	if (bad)
		return bad;
	out->timeout_ms = wire_get_u32(w);
	wire_get_text(w, out->cwd, sizeof(out->cwd));
	wire_get_text(w, out->user, sizeof(out->user));
	wire_get_text(w, out->label, sizeof(out->label));
	bad = get_args(w, out, e);
	if (bad)
		return bad;
	out->variables = w->pos + 4;
	return payload_env(w, "process", &out->env, e);
}

static int get_signal(struct wire *w, struct process_request *out, struct err *e)
{
	out->signal = wire_get_u8(w);
	if (!w->bad && (!out->signal || out->signal > SIGNAL_MAX))
		return err_say(e, EPROTO, "process: there is no signal %u", out->signal);
	return 0;
}

static int parse_fields(struct wire *w, struct process_request *out, struct err *e)
{
	switch (out->type) {
	case AGENT_PROC_START:
		return parse_start(w, out, e);
	case AGENT_PROC_RESIZE:
		return get_size(w, out, e);
	case AGENT_PROC_SIGNAL:
		return get_signal(w, out, e);
	case AGENT_PROC_ATTACH:
		out->offset = wire_get_u64(w);
		out->holds = wire_get_u8(w) != 0;
		return 0;
	default:
		return 0;
	}
}

int process_request_parse(const struct frame *f, struct process_request *out, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);

	memset(out, 0, sizeof(*out));
	out->type = f->type;
	int bad = payload_id(&w, "process", out->id, e);
	if (!bad)
		bad = parse_fields(&w, out, e);
	if (bad)
		return bad;
	out->rest = w.pos;
	if (f->type == AGENT_PROC_INPUT)
		return 0;
	return payload_end(&w, "process", e);
}
