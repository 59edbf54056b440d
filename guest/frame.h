// SPDX-License-Identifier: Apache-2.0
/*
 * Parses the frames of proto/agent.h and trusts nothing in them. The agent and the Python driver
 * exchange the same frames over their private socket, so both directions are parsed here.
 */
#ifndef RAMET_GUEST_FRAME_H
#define RAMET_GUEST_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/wire.h"
#include "proto/agent.h"

#define FRAME_MAX (AGENT_HEADER_SIZE + AGENT_PAYLOAD_MAX)

/* A frame being received: read up to frame_room() bytes to frame_end(), then call frame_got(). */
struct frame_in {
	size_t have;
	uint8_t bytes[FRAME_MAX];
};

struct frame {
	uint8_t type;
	uint32_t len;
	const uint8_t *payload; /* inside the frame_in, until it is reset */
};

/* Return where the next bytes go, and how many of this frame are missing: never 0 before
 * frame_got has returned 1. */
uint8_t *frame_end(struct frame_in *in);
size_t frame_room(const struct frame_in *in);
/*
 * Counts `n` bytes that were read. Returns 1 and fills `f` when the frame is whole, 0 when bytes
 * are missing, -EPROTO when the header is malformed.
 */
int frame_got(struct frame_in *in, size_t n, struct frame *f, struct err *e);
/* Returns the whole frame that was received, again. */
struct frame frame_again(const struct frame_in *in);
/* Makes room for the next frame. */
void frame_reset(struct frame_in *in);

/* Writes the header of a frame with `len` payload bytes; `out` holds AGENT_HEADER_SIZE. */
void frame_header(uint8_t *out, uint8_t type, uint32_t len);

/* Does the same as wire_get_str, but a zero byte makes `w` bad: the kernel would end the string
 * there. */
const uint8_t *payload_text(struct wire *w, size_t *len, size_t max);
/* Copies the id of a process or context, AGENT_ID_LEN bytes. `what` names it in errors. Returns 0
 * or -EPROTO. */
int payload_id(struct wire *w, const char *what, char *out, struct err *e);
/* Checks and skips u32 count, then `count` times str name, str value. Returns 0 or -EPROTO. */
int payload_env(struct wire *w, const char *what, uint32_t *count, struct err *e);
/* Returns 0, or -EPROTO when the fields of a `what` did not fill the payload exactly. */
int payload_end(const struct wire *w, const char *what, struct err *e);

#define EXEC_CWD_MAX 4096u
#define EXEC_ENV_MAX 1024u

struct exec_request {
	enum agent_language language;
	uint32_t timeout_ms; /* 0: none */
	uint32_t code_len;
	uint64_t call; /* a number that the host chose */
	/* Bytes before the request in the payload of the connection's frame: 0 but in
	 * AGENT_IN_CONTEXT. Set by interpreter_handle. */
	size_t at;
};

/* Checks a whole AGENT_EXEC payload, including env and cwd. Returns 0 or -EPROTO. */
int exec_parse(const struct frame *f, struct exec_request *out, struct err *e);

struct attach_request {
	uint64_t call;
	uint64_t have;
};

/* Checks an AGENT_ATTACH payload. Returns 0 or -EPROTO. */
int attach_parse(const struct frame *f, struct attach_request *out, struct err *e);

/* Reads the number of the call from an AGENT_INTERRUPT. Returns 0 or -EPROTO. */
int interrupt_parse(const struct frame *f, uint64_t *call, struct err *e);

struct tree_request {
	uint32_t count;
	struct {
		const uint8_t *text; /* inside the payload; absolute, without a zero byte */
		size_t len;
	} paths[AGENT_PATHS_MAX];
};

/* Checks an AGENT_TREE payload. Returns 0 or -EPROTO. */
int tree_parse(const struct frame *f, struct tree_request *out, struct err *e);

/* Reads the port from an AGENT_DIAL, which is not 0. Returns 0 or -EPROTO. */
int dial_parse(const struct frame *f, uint16_t *port, struct err *e);

#define HOST_NAME_LEN 64

struct reseed_request {
	uint8_t entropy[AGENT_ENTROPY_LEN];
	int64_t realtime_ns;
	uint8_t user_generators;
	char hostname[HOST_NAME_LEN + 1]; /* empty: unchanged */
};

/* Checks an AGENT_RESEED payload. Returns 0 or -EPROTO. */
int reseed_parse(const struct frame *f, struct reseed_request *out, struct err *e);

#endif
