// SPDX-License-Identifier: Apache-2.0
/*
 * The frames of proto/agent.h, taken apart with nothing believed. The agent and the Python driver
 * speak the same frames over their private socket, so both directions are read here.
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

/* One frame being received: read up to frame_room() bytes to frame_end(), then frame_got(). */
struct frame_in {
	size_t have;
	uint8_t bytes[FRAME_MAX];
};

struct frame {
	uint8_t type;
	uint32_t len;
	const uint8_t *payload; /* inside the frame_in, until it is reset */
};

/* Where the next bytes go, and how many of this frame are missing. Never 0 before frame_got. */
uint8_t *frame_end(struct frame_in *in);
size_t frame_room(const struct frame_in *in);
/*
 * Counts `n` bytes that were read. Returns 1 and fills `f` when the frame is whole, 0 when more
 * is to come, -EPROTO with a sentence when it is no frame of ours.
 */
int frame_got(struct frame_in *in, size_t n, struct frame *f, struct err *e);
/* The whole frame that is there, once more. */
struct frame frame_again(const struct frame_in *in);
/* Makes room for the next frame. */
void frame_reset(struct frame_in *in);

/* Writes the header of a frame with `len` payload bytes; `out` holds AGENT_HEADER_SIZE. */
void frame_header(uint8_t *out, uint8_t type, uint32_t len);

/* A str without a zero byte, which the kernel would take for its end; as wire_get_str. */
const uint8_t *payload_text(struct wire *w, size_t *len, size_t max);
/* Checks and skips u32 count, then as many times str name, str value. 0, or -EPROTO. */
int payload_env(struct wire *w, const char *what, uint32_t *count, struct err *e);
/* 0, or -EPROTO with a sentence about `what` when the fields did not fill the payload exactly. */
int payload_end(const struct wire *w, const char *what, struct err *e);

#define EXEC_CWD_MAX 4096u
#define EXEC_ENV_MAX 1024u

struct exec_request {
	enum agent_language language;
	uint32_t timeout_ms; /* 0: none */
	uint32_t code_len;
	uint64_t call; /* the host's number of it */
};

/* Checks a whole AGENT_EXEC payload, env and cwd too. 0, or -EPROTO with a sentence. */
int exec_parse(const struct frame *f, struct exec_request *out, struct err *e);

struct attach_request {
	uint64_t call;
	uint64_t have;
};

/* Checks an AGENT_ATTACH payload. 0, or -EPROTO with a sentence. */
int attach_parse(const struct frame *f, struct attach_request *out, struct err *e);

struct tree_request {
	uint32_t count;
	struct {
		const uint8_t *text; /* inside the payload; absolute, without a zero byte */
		size_t len;
	} paths[AGENT_PATHS_MAX];
};

/* Checks an AGENT_TREE payload. 0, or -EPROTO with a sentence. */
int tree_parse(const struct frame *f, struct tree_request *out, struct err *e);

#define HOST_NAME_LEN 64

struct reseed_request {
	uint8_t entropy[AGENT_ENTROPY_LEN];
	int64_t realtime_ns;
	uint8_t user_generators;
	char hostname[HOST_NAME_LEN + 1]; /* empty: unchanged */
};

/* Checks an AGENT_RESEED payload. 0, or -EPROTO with a sentence. */
int reseed_parse(const struct frame *f, struct reseed_request *out, struct err *e);

#endif
