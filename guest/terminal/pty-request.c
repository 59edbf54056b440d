// SPDX-License-Identifier: Apache-2.0
#include "guest/terminal/pty-request.h"

#include <errno.h>
#include <string.h>

bool pty_request_is(uint8_t type)
{
	return type >= AGENT_PTY_START && type <= AGENT_PTY_KILL;
}

static int get_id(struct wire *w, char *id, struct err *e)
{
	size_t len;
	const uint8_t *text = payload_text(w, &len, AGENT_ID_LEN);

	if (w->bad || len != AGENT_ID_LEN)
		return err_say(e, EPROTO, "pty: an id has %d bytes", AGENT_ID_LEN);
	memcpy(id, text, len);
	return 0;
}

static int get_size(struct wire *w, struct pty_request *out, struct err *e)
{
	out->cols = wire_get_u16(w);
	out->rows = wire_get_u16(w);
	if (!w->bad && (!out->cols || !out->rows))
		return err_say(e, EPROTO, "pty: columns and rows must not be 0");
	return 0;
}

static void get_text(struct wire *w, char *out, size_t max)
{
	size_t len;
	const uint8_t *text = payload_text(w, &len, max);

	if (!w->bad)
		memcpy(out, text, len);
}

static int get_args(struct wire *w, struct pty_request *out, struct err *e)
{
	size_t len;

	out->argc = wire_get_u32(w);
	if (!w->bad && (!out->argc || out->argc > PTY_ARGS_MAX))
		return err_say(e, EPROTO, "pty: %u arguments; allowed are 1 to %u", out->argc,
			       PTY_ARGS_MAX);
	out->args = w->pos;
	for (uint32_t i = 0; i < out->argc; i++)
		payload_text(w, &len, AGENT_PAYLOAD_MAX);
	return 0;
}

static int parse_start(struct wire *w, struct pty_request *out, struct err *e)
{
	int bad = get_size(w, out, e);

	if (bad)
		return bad;
	get_text(w, out->cwd, AGENT_PATH_MAX);
	get_text(w, out->label, AGENT_LABEL_MAX);
	bad = get_args(w, out, e);
	if (bad)
		return bad;
	out->variables = w->pos + 4;
	return payload_env(w, "pty", &out->env, e);
}

int pty_request_parse(const struct frame *f, struct pty_request *out, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);

	memset(out, 0, sizeof(*out));
	out->type = f->type;
	int bad = get_id(&w, out->id, e);
	if (!bad && f->type == AGENT_PTY_START)
		bad = parse_start(&w, out, e);
	else if (!bad && f->type == AGENT_PTY_RESIZE)
		bad = get_size(&w, out, e);
	else if (!bad && f->type == AGENT_PTY_ATTACH)
		out->offset = wire_get_u64(&w);
	if (bad)
		return bad;
	out->rest = w.pos;
	if (f->type == AGENT_PTY_INPUT)
		return 0;
	return payload_end(&w, "pty", e);
}
