// SPDX-License-Identifier: Apache-2.0
#include "guest/frame.h"

#include <errno.h>
#include <string.h>

/* Returns the payload bytes of the frame; 0 while its header is incomplete. */
static size_t payload_len(const struct frame_in *in)
{
	struct wire w = wire_from(in->bytes, AGENT_HEADER_SIZE);

	return in->have < AGENT_HEADER_SIZE ? 0 : wire_get_u32(&w);
}

uint8_t *frame_end(struct frame_in *in)
{
	return in->bytes + in->have;
}

size_t frame_room(const struct frame_in *in)
{
	return AGENT_HEADER_SIZE + payload_len(in) - in->have;
}

static int check_header(const uint8_t *header, struct err *e)
{
	struct wire w = wire_from(header, AGENT_HEADER_SIZE);
	uint32_t len = wire_get_u32(&w);

	wire_get_u8(&w);
	if (len > AGENT_PAYLOAD_MAX)
		return err_say(e, EPROTO, "frame of %u bytes; the limit is %u", len,
			       AGENT_PAYLOAD_MAX);
	if (wire_get_u8(&w) || wire_get_u16(&w))
		return err_say(e, EPROTO, "a frame header's last three bytes must be zero");
	return 0;
}

int frame_got(struct frame_in *in, size_t n, struct frame *f, struct err *e)
{
	in->have += n;
	if (in->have < AGENT_HEADER_SIZE)
		return 0;
	int bad = check_header(in->bytes, e);
	if (bad)
		return bad;
	if (frame_room(in))
		return 0;
	*f = frame_again(in);
	return 1;
}

struct frame frame_again(const struct frame_in *in)
{
	return (struct frame){.type = in->bytes[4],
			      .len = (uint32_t)payload_len(in),
			      .payload = in->bytes + AGENT_HEADER_SIZE};
}

void frame_reset(struct frame_in *in)
{
	in->have = 0;
}

void frame_header(uint8_t *out, uint8_t type, uint32_t len)
{
	struct wire w = wire_on(out, AGENT_HEADER_SIZE);

	wire_put_u32(&w, len);
	wire_put_u8(&w, type);
	wire_put_u8(&w, 0);
	wire_put_u16(&w, 0);
}

int payload_end(const struct wire *w, const char *what, struct err *e)
{
	if (w->bad || wire_left(w))
		return err_say(e, EPROTO, "%s: fields do not fill the payload exactly", what);
	return 0;
}

const uint8_t *payload_text(struct wire *w, size_t *len, size_t max)
{
	const uint8_t *text = wire_get_str(w, len, max);

	if (text && memchr(text, 0, *len))
		w->bad = true;
	return text;
}

int payload_id(struct wire *w, const char *what, char *out, struct err *e)
{
	wire_get_text(w, out, AGENT_ID_LEN + 1);
	if (w->bad || strlen(out) != AGENT_ID_LEN)
		return err_say(e, EPROTO, "%s: an id has %d bytes", what, AGENT_ID_LEN);
	return 0;
}

int payload_env(struct wire *w, const char *what, uint32_t *count, struct err *e)
{
	size_t len;

	*count = wire_get_u32(w);
	if (*count > EXEC_ENV_MAX)
		return err_say(e, EPROTO, "%s: %u variables; the limit is %u", what, *count,
			       EXEC_ENV_MAX);
	for (uint32_t i = 0; i < *count; i++) {
		payload_text(w, &len, AGENT_PAYLOAD_MAX);
		payload_text(w, &len, AGENT_PAYLOAD_MAX);
	}
	return 0;
}

int exec_parse(const struct frame *f, struct exec_request *out, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);
	uint8_t language = wire_get_u8(&w), flags = wire_get_u8(&w);
	uint32_t env;
	size_t len;

	out->timeout_ms = wire_get_u32(&w);
	out->code_len = wire_get_u32(&w);
	out->call = wire_get_u64(&w);
	if (language > AGENT_BASH)
		return err_say(e, EPROTO, "exec: there is no language %u", language);
	if (flags & ~(AGENT_EXEC_RESULTS | AGENT_EXEC_PREPARES))
		return err_say(e, EPROTO, "exec: the flags 0x%x have unknown bits", flags);
	if (out->code_len > AGENT_CODE_MAX)
		return err_say(e, EPROTO, "exec: %u bytes of code; the limit is %u", out->code_len,
			       AGENT_CODE_MAX);
	out->language = language;
	payload_text(&w, &len, EXEC_CWD_MAX);
	int bad = payload_env(&w, "exec", &env, e);
	if (bad)
		return bad;
	return payload_end(&w, "exec", e);
}

int attach_parse(const struct frame *f, struct attach_request *out, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);

	out->call = wire_get_u64(&w);
	out->have = wire_get_u64(&w);
	return payload_end(&w, "attach", e);
}

int interrupt_parse(const struct frame *f, uint64_t *call, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);

	*call = wire_get_u64(&w);
	return payload_end(&w, "interrupt", e);
}

int dial_parse(const struct frame *f, uint16_t *port, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);

	*port = wire_get_u16(&w);
	int bad = payload_end(&w, "dial", e);
	if (bad)
		return bad;
	return *port ? 0 : err_say(e, EPROTO, "dial: port 0 can't be connected to");
}

int tree_parse(const struct frame *f, struct tree_request *out, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);

	out->count = wire_get_u32(&w);
	if (out->count > AGENT_PATHS_MAX)
		return err_say(e, EPROTO, "tree: %u paths; the limit is %u", out->count,
			       AGENT_PATHS_MAX);
	for (uint32_t i = 0; i < out->count; i++) {
		out->paths[i].text = payload_text(&w, &out->paths[i].len, AGENT_PATH_MAX);
		if (!w.bad && (!out->paths[i].len || out->paths[i].text[0] != '/'))
			return err_say(e, EPROTO, "tree: a path must start with /");
	}
	return payload_end(&w, "tree", e);
}

static bool hostname_is_plain(const char *name)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789-.";

	return name[strspn(name, allowed)] == '\0';
}

int reseed_parse(const struct frame *f, struct reseed_request *out, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);

	wire_get_bytes(&w, out->entropy, sizeof(out->entropy));
	out->realtime_ns = (int64_t)wire_get_u64(&w);
	out->user_generators = wire_get_u8(&w);
	wire_get_text(&w, out->hostname, sizeof(out->hostname));
	int bad = payload_end(&w, "reseed", e);
	if (bad)
		return bad;
	if (out->realtime_ns < 0)
		return err_say(e, EPROTO, "reseed: the time is before 1970");
	if (!hostname_is_plain(out->hostname))
		return err_say(e, EPROTO,
			       "reseed: a host name may only contain letters, digits, - and .");
	return 0;
}
