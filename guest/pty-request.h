// SPDX-License-Identifier: Apache-2.0
/* The requests about terminals, AGENT_PTY_*, taken apart with nothing believed. */
#ifndef RAMET_GUEST_PTY_REQUEST_H
#define RAMET_GUEST_PTY_REQUEST_H

#include <stdbool.h>

#include "guest/frame.h"

#define PTY_ARGS_MAX 4096u

/* What the type has no field for is zero. The pieces are inside the payload. */
struct pty_request {
	uint8_t type;
	char id[AGENT_ID_LEN + 1];
	uint16_t cols, rows;
	uint64_t place;	  /* ATTACH */
	size_t rest;	  /* INPUT: where the bytes begin in the payload */
	uint32_t argc;	  /* START: at least 1 */
	size_t args;	  /* where its arguments begin: argc times str */
	uint32_t env;	  /* variables */
	size_t variables; /* where they begin: `env` times str name, str value */
	char cwd[AGENT_PATH_MAX + 1];
	char label[AGENT_LABEL_MAX + 1];
};

/* True for the types that pty_request_parse takes; AGENT_PTY_LIST has no payload. */
bool pty_request_is(uint8_t type);
/* 0, or -EPROTO with a sentence. */
int pty_request_parse(const struct frame *f, struct pty_request *out, struct err *e);

#endif
