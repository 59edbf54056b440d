// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/context-request.h"

#include <errno.h>
#include <string.h>

bool context_request_is(uint8_t type)
{
	return type >= AGENT_CONTEXT_START && type <= AGENT_IN_CONTEXT;
}

static int get_id(struct wire *w, char *id, struct err *e)
{
	int bad = payload_id(w, "context", id, e);

	/* The id is the name of a folder too. */
	if (!bad && (strchr(id, '/') || id[0] == '.'))
		bad = err_say(e, EPROTO, "context: an id must not be a path");
	return bad;
}

static int parse_start(struct wire *w, struct context_request *out, struct err *e)
{
	uint8_t language = wire_get_u8(w);

	if (language > AGENT_JAVASCRIPT)
		return err_say(e, EPROTO, "context: there is no language %u", language);
	out->language = language;
	wire_get_text(w, out->cwd, sizeof(out->cwd));
	out->env = w->pos + 4;
	return payload_env(w, "context", &out->env_count, e);
}

static int parse_inner(const struct frame *f, struct wire *w, struct context_request *out,
		       struct err *e)
{
	uint8_t type = wire_get_u8(w);

	if (w->bad || (type != AGENT_EXEC && type != AGENT_ATTACH && type != AGENT_INTERRUPT))
		return err_say(e, EPROTO,
			       "context: a request of type %u cannot be made to a context", type);
	out->inner = (struct frame){
		.type = type, .len = f->len - (uint32_t)w->pos, .payload = f->payload + w->pos};
	return 0;
}

int context_request_parse(const struct frame *f, struct context_request *out, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);

	memset(out, 0, sizeof(*out));
	out->type = f->type;
	int bad = f->type == AGENT_CONTEXT_LIST ? 0 : get_id(&w, out->id, e);
	if (bad)
		return bad;
	if (f->type == AGENT_IN_CONTEXT)
		return parse_inner(f, &w, out, e);
	if (f->type == AGENT_CONTEXT_START)
		bad = parse_start(&w, out, e);
	return bad ? bad : payload_end(&w, "context", e);
}
