// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "orchestrator/core/agent.h"

/* --- from the guest ------------------------------------------------------------------------- */

static bool read_payload(struct wire *w, struct agent_frame *f)
{
	switch (f->type) {
	case AGENT_PONG:
		f->version = wire_get_u32(w);
		break;
	case AGENT_STDOUT:
	case AGENT_STDERR:
		f->data = w->p;
		f->len = w->size;
		return true;
	case AGENT_EXIT:
		f->exit_code = (int32_t)wire_get_u32(w);
		f->state_lost = wire_get_u8(w) != 0;
		break;
	case AGENT_DONE:
		break;
	case AGENT_ERROR:
		f->errnum = wire_get_u32(w);
		f->data = wire_get_str(w, &f->len, AGENT_PAYLOAD_MAX);
		break;
	default:
		return false;
	}
	return !w->bad && wire_left(w) == 0;
}

ssize_t agent_frame_read(const uint8_t *buf, size_t len, struct agent_frame *out, struct err *e)
{
	struct wire head = wire_from(buf, len);

	if (len < AGENT_HEADER_SIZE)
		return 0;
	uint32_t size = wire_get_u32(&head);
	uint8_t type = wire_get_u8(&head), zero8 = wire_get_u8(&head);
	uint16_t zero16 = wire_get_u16(&head);
	if (size > AGENT_PAYLOAD_MAX || zero8 || zero16)
		return err_say(e, EPROTO, "the guest's agent sent a frame with a bad header");
	if (len - AGENT_HEADER_SIZE < size)
		return 0;
	*out = (struct agent_frame){.type = type};
	struct wire body = wire_from(buf + AGENT_HEADER_SIZE, size);
	if (!read_payload(&body, out))
		return err_say(e, EPROTO, "the guest's agent sent a bad frame of type %u", type);
	return (ssize_t)(AGENT_HEADER_SIZE + size);
}

/* --- to the guest --------------------------------------------------------------------------- */

static void put_header(struct wire *w, size_t len, enum agent_request type)
{
	wire_put_u32(w, (uint32_t)len);
	wire_put_u8(w, (uint8_t)type);
	wire_put_u8(w, 0);
	wire_put_u16(w, 0);
}

static size_t env_size(const char *const *env, uint32_t *count)
{
	size_t size = 0;

	/* The "=" is not sent. */
	for (; env && *env; env++, (*count)++)
		size += 2 * sizeof(uint32_t) + strlen(*env) - (strchr(*env, '=') != NULL);
	return size;
}

static void put_env(struct wire *w, const char *const *env)
{
	for (; env && *env; env++) {
		size_t name = strcspn(*env, "=");
		const char *value = *env + name + ((*env)[name] == '=');

		wire_put_str(w, *env, name);
		wire_put_str(w, value, strlen(value));
	}
}

static void put_code(struct wire *w, const char *code, size_t len)
{
	while (len) {
		size_t part = len < AGENT_PAYLOAD_MAX ? len : AGENT_PAYLOAD_MAX;

		put_header(w, part, AGENT_CODE);
		wire_put_bytes(w, code, part);
		code += part;
		len -= part;
	}
}

int agent_exec_bytes(const struct agent_exec *exec, uint8_t **out, size_t *len)
{
	const char *cwd = exec->cwd ? exec->cwd : "";
	uint32_t env_count = 0;
	size_t head = 1 + 4 + 4 + 4 + strlen(cwd) + 4;

	head += env_size(exec->env[0], &env_count) + env_size(exec->env[1], &env_count);
	if (head > AGENT_PAYLOAD_MAX || exec->code_len > AGENT_CODE_MAX)
		return -E2BIG;
	size_t frames = 1 + (exec->code_len + AGENT_PAYLOAD_MAX - 1) / AGENT_PAYLOAD_MAX;
	size_t room = frames * AGENT_HEADER_SIZE + head + exec->code_len;
	uint8_t *bytes = malloc(room);
	if (!bytes)
		return -ENOMEM;
	struct wire w = wire_on(bytes, room);
	put_header(&w, head, AGENT_EXEC);
	wire_put_u8(&w, (uint8_t)exec->language);
	wire_put_u32(&w, exec->timeout_ms);
	wire_put_u32(&w, (uint32_t)exec->code_len);
	wire_put_str(&w, cwd, strlen(cwd));
	wire_put_u32(&w, env_count);
	put_env(&w, exec->env[0]);
	put_env(&w, exec->env[1]);
	put_code(&w, exec->code, exec->code_len);
	*out = bytes;
	*len = w.pos;
	return 0;
}

int agent_plain_bytes(enum agent_request type, uint8_t **out, size_t *len)
{
	*out = malloc(AGENT_HEADER_SIZE);
	*len = AGENT_HEADER_SIZE;
	if (!*out)
		return -ENOMEM;
	struct wire w = wire_on(*out, *len);
	put_header(&w, 0, type);
	return 0;
}

int agent_reseed_bytes(const uint8_t entropy[AGENT_ENTROPY_LEN], int64_t realtime_ns,
		       const char *hostname, uint8_t **out, size_t *len)
{
	size_t body = AGENT_ENTROPY_LEN + 8 + 1 + 4 + strlen(hostname);

	*len = AGENT_HEADER_SIZE + body;
	*out = malloc(*len);
	if (!*out)
		return -ENOMEM;
	struct wire w = wire_on(*out, *len);
	put_header(&w, body, AGENT_RESEED);
	wire_put_bytes(&w, entropy, AGENT_ENTROPY_LEN);
	wire_put_u64(&w, (uint64_t)realtime_ns);
	wire_put_u8(&w, 1);
	wire_put_str(&w, hostname, strlen(hostname));
	return 0;
}
