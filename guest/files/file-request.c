// SPDX-License-Identifier: Apache-2.0
#include "guest/files/file-request.h"

#include <errno.h>
#include <string.h>

#include "proto/agent-file.h"

static int get_path(struct wire *w, const char *what, char *path, struct err *e)
{
	wire_get_text(w, path, AGENT_PATH_MAX + 1);
	if (w->bad)
		return payload_end(w, what, e);
	return path[0] == '/' ? 0 : err_say(e, EPROTO, "%s: a path must start with /", what);
}

/* `unchanged`: AGENT_UNCHANGED is valid, too. */
static int get_mode(struct wire *w, const char *what, bool unchanged, uint32_t *mode, struct err *e)
{
	*mode = wire_get_u32(w);
	if (*mode > 07777 && !(unchanged && *mode == AGENT_UNCHANGED))
		return err_say(e, EPROTO, "%s: mode 0%o; the limit is 07777", what, *mode);
	return 0;
}

static int get_flag(struct wire *w, const char *what, bool *flag, struct err *e)
{
	uint8_t value = wire_get_u8(w);

	if (value > 1)
		return err_say(e, EPROTO, "%s: a flag is 0 or 1, not %u", what, value);
	*flag = value;
	return 0;
}

static int get_depth(struct wire *w, const char *what, uint32_t *depth, struct err *e)
{
	*depth = wire_get_u32(w);
	if (*depth > AGENT_DEPTH_MAX)
		return err_say(e, EPROTO, "%s: depth %u; the limit is %d", what, *depth,
			       AGENT_DEPTH_MAX);
	return 0;
}

static int get_how(struct wire *w, const char *what, enum agent_write *how, struct err *e)
{
	uint8_t value = wire_get_u8(w);

	if (value > AGENT_WRITE_APPEND)
		return err_say(e, EPROTO, "%s: unknown way to write (%u)", what, value);
	*how = value;
	return 0;
}

static int get_field(enum agent_file_field field, struct wire *w, const char *what,
		     struct file_request *out, struct err *e)
{
	switch (field) {
	case FIELD_OFFSET:
		out->offset = wire_get_u64(w);
		return 0;
	case FIELD_SIZE:
		out->size = wire_get_u64(w);
		return 0;
	case FIELD_MODE:
		return get_mode(w, what, false, &out->mode, e);
	case FIELD_FLAG:
		return get_flag(w, what, &out->flag, e);
	case FIELD_PATH:
		return get_path(w, what, out->path, e);
	case FIELD_TO:
		return get_path(w, what, out->to, e);
	case FIELD_NEW_MODE:
		return get_mode(w, what, true, &out->mode, e);
	case FIELD_OWNER:
		out->uid = wire_get_u32(w);
		out->gid = wire_get_u32(w);
		return 0;
	case FIELD_DEPTH:
		return get_depth(w, what, &out->depth, e);
	case FIELD_LIMIT:
		out->limit = wire_get_u32(w);
		return 0;
	case FIELD_AFTER:
		wire_get_text(w, out->after, sizeof(out->after));
		return 0;
	case FIELD_HOW:
		return get_how(w, what, &out->how, e);
	case FIELD_END:
		break;
	}
	return 0;
}

int file_request_parse(const struct frame *f, struct file_request *out, struct err *e)
{
	const struct agent_file_layout *layout = &agent_file_layouts[f->type];
	struct wire w = wire_from(f->payload, f->len);

	memset(out, 0, sizeof(*out));
	out->type = f->type;
	for (int i = 0; layout->fields[i] != FIELD_END; i++) {
		int bad = get_field(layout->fields[i], &w, layout->name, out, e);

		if (bad)
			return bad;
	}
	return payload_end(&w, layout->name, e);
}
