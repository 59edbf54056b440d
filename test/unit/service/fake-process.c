// SPDX-License-Identifier: Apache-2.0
#include "test/unit/service/fake-process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "proto/agent.h"
#include "test/unit/service/fake-call.h"

#define OTHER_ID "prc_ffffffffffffffffffffffffffffffff"

const char *fake_process_id(const char *prefix, int which)
{
	static char id[AGENT_ID_LEN + 1];

	snprintf(id, sizeof(id), "%s%d%031d", prefix, which, 0);
	return id;
}

/* Returns the digit that selects the behaviour of `id`: '0' of an id that the service made. */
static char digit(const char *id)
{
	return strspn(id + 5, "0") == AGENT_ID_LEN - 5 ? id[4] : '0';
}

static bool send_process(int fd, const char *id, uint8_t signal, uint64_t total)
{
	uint8_t body[256];
	struct wire w = wire_on(body, sizeof(body));
	unsigned tty = strncmp(id, "pty_", 4) == 0 ? AGENT_PROC_TTY : 0;

	wire_put_str(&w, id, AGENT_ID_LEN);
	wire_put_str(&w, "ls -l", 5);
	wire_put_str(&w, "joe", 3);
	wire_put_u32(&w, 412);
	wire_put_u64(&w, 1700000000000);
	wire_put_u64(&w, signal ? 1700000001000 : 0);
	wire_put_u64(&w, total);
	wire_put_u8(&w, (uint8_t)(tty | (signal ? AGENT_PROC_TIMED_OUT : AGENT_PROC_STDIN)));
	wire_put_u32(&w, signal ? 128u + signal : 0);
	wire_put_u8(&w, signal);
	return fake_send_frame(fd, AGENT_PROC, body, w.pos);
}

static bool send_output(int fd, uint64_t offset, uint8_t stream, const char *text)
{
	uint8_t body[64];
	struct wire w = wire_on(body, sizeof(body));

	wire_put_u64(&w, offset);
	wire_put_u8(&w, stream);
	wire_put_bytes(&w, text, strlen(text));
	return fake_send_frame(fd, AGENT_PROC_BYTES, body, w.pos);
}

static bool send_exit(int fd)
{
	uint8_t body[32];
	struct wire w = wire_on(body, sizeof(body));

	wire_put_u32(&w, 143);
	wire_put_u8(&w, 15);
	wire_put_u8(&w, 1);
	wire_put_u64(&w, 1700000001000);
	wire_put_u64(&w, 11);
	return fake_send_frame(fd, AGENT_PROC_EXIT, body, w.pos);
}

static bool flood(int fd)
{
	uint8_t *frame = malloc(AGENT_PAYLOAD_MAX);
	uint64_t offset = 0;
	bool sent = true;

	memset(frame, 'x', AGENT_PAYLOAD_MAX);
	for (; sent; offset += AGENT_PAYLOAD_MAX - 9) {
		struct wire w = wire_on(frame, 9);

		wire_put_u64(&w, offset);
		wire_put_u8(&w, 1);
		sent = fake_send_frame(fd, AGENT_PROC_BYTES, frame, AGENT_PAYLOAD_MAX);
	}
	free(frame);
	return false;
}

static bool stream(const struct fake_files *f, int fd, const char *id, char which, uint64_t offset)
{
	switch (which) {
	case '1':
		return send_process(fd, id, 0, 0) && flood(fd);
	case '2':
		return send_process(fd, id, 0, 0) && send_output(fd, 9, 1, "a") &&
		       send_output(fd, 8, 1, "b");
	case '3':
		return send_process(fd, id, 0, 0) && send_process(fd, id, 0, 0);
	case '4':
		return send_output(fd, 0, 1, "a");
	case '5':
		return send_process(fd, id, 0, 0) && fake_send_done(fd);
	case '6':
		return send_process(fd, OTHER_ID, 0, 0);
	case '7':
		return send_process(fd, id, 0, offset) && send_output(fd, offset, 1, "hello") &&
		       send_output(fd, offset + 15, 1, "world") && send_exit(fd);
	case '8':
		return send_process(fd, id, 15, 11) && send_exit(fd);
	case 'a':
		return send_process(fd, id, 0, 0) && f->wait(f->guest) && flood(fd);
	default:
		if (offset > 11)
			return fake_send_error(fd, ERANGE);
		return send_process(fd, id, 0, 5) &&
		       (offset >= 5 || send_output(fd, offset, 1, &"hello"[offset])) &&
		       f->wait(f->guest) && send_output(fd, 5, 2, " world") && send_exit(fd);
	}
}

static bool start(const struct fake_files *f, int fd, const char *id, struct wire *w)
{
	char program[64] = "";
	size_t len;
	unsigned n;
	uint8_t flags = wire_get_u8(w);

	wire_get_u16(w);
	wire_get_u16(w);
	wire_get_u32(w);
	for (int i = 0; i < 3; i++)
		wire_get_str(w, &len, AGENT_PATH_MAX);
	wire_get_u32(w);
	const uint8_t *text = wire_get_str(w, &len, sizeof(program) - 1);
	if (text)
		memcpy(program, text, len);
	if (sscanf(program, "/errno/%u", &n) == 1)
		return fake_send_error(fd, n);
	if (strcmp(program, "/wait") == 0 && !f->wait(f->guest))
		return false;
	if (w->bad)
		return false;
	if (strcmp(program, "/silent") == 0)
		return fake_send_done(fd);
	if (flags & AGENT_PROC_FOLLOW)
		return stream(f, fd, id, strcmp(program, "/flood") == 0 ? '1' : '0', 0);
	return send_process(fd, id, 0, 0) && fake_send_done(fd);
}

static bool list(int fd)
{
	char id[AGENT_ID_LEN + 1];

	for (int i = 0; i < 3; i++) {
		snprintf(id, sizeof(id), "%s_%d%031d", i == 1 ? "pty" : "prc", i, 0);
		if (!send_process(fd, id, i == 2 ? 15 : 0, 11))
			return false;
	}
	return fake_send_done(fd);
}

static bool take_input(const struct fake_files *f, int fd, const struct wire *w)
{
	*f->put_bytes += wire_left(w);
	*f->put_sum = fake_sum(*f->put_sum, w->p + w->pos, wire_left(w));
	return fake_send_done(fd);
}

static bool serve_one(const struct fake_files *f, int fd, uint8_t type, const char *id,
		      struct wire *w)
{
	switch (type) {
	case AGENT_PROC_ATTACH:
		return stream(f, fd, id, digit(id), wire_get_u64(w));
	case AGENT_PROC_INPUT:
		return digit(id) == '3' ? fake_send_error(fd, EPIPE) : take_input(f, fd, w);
	case AGENT_PROC_SIGNAL:
		return digit(id) == '3' ? fake_send_error(fd, ESRCH) : fake_send_done(fd);
	case AGENT_PROC_STAT:
		return (digit(id) == '3' ||
			send_process(fd, digit(id) == '6' ? OTHER_ID : id, 15, 11)) &&
		       fake_send_done(fd);
	default:
		return fake_send_done(fd);
	}
}

bool fake_process_serve(const struct fake_files *f, int fd, uint8_t type, const uint8_t *body,
			size_t len)
{
	struct wire w = wire_from(body, len);
	char id[AGENT_ID_LEN + 1] = "";
	size_t id_len;

	if (type == AGENT_PROC_LIST)
		return list(fd);
	const uint8_t *text = wire_get_str(&w, &id_len, AGENT_ID_LEN);
	if (id_len != AGENT_ID_LEN)
		return false;
	memcpy(id, text, id_len);
	if (type == AGENT_PROC_START)
		return start(f, fd, id, &w);
	if (digit(id) == '9' && type != AGENT_PROC_KILL)
		return fake_send_error(fd, ENOENT);
	return serve_one(f, fd, type, id, &w);
}
