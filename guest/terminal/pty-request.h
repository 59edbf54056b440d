// SPDX-License-Identifier: Apache-2.0
/* Parses the requests on terminals, AGENT_PTY_*, and trusts nothing in them. */
#ifndef RAMET_GUEST_TERMINAL_PTY_REQUEST_H
#define RAMET_GUEST_TERMINAL_PTY_REQUEST_H

#include <stdbool.h>

#include "guest/frame.h"

#define PTY_ARGS_MAX 4096u

/* Fields that the type does not have are zero. `rest`, `args` and `variables` are offsets in the
 * payload. */
struct pty_request {
	uint8_t type;
	char id[AGENT_ID_LEN + 1];
	uint16_t cols, rows;
	uint64_t offset;  /* ATTACH */
	size_t rest;	  /* INPUT: the bytes to type */
	uint32_t argc;	  /* START: at least 1 */
	size_t args;	  /* argc times str */
	uint32_t env;	  /* START: number of variables */
	size_t variables; /* `env` times str name, str value */
	char cwd[AGENT_PATH_MAX + 1];
	char label[AGENT_LABEL_MAX + 1];
};

/* Returns true for the types that pty_request_parse accepts; AGENT_PTY_LIST has no payload. */
bool pty_request_is(uint8_t type);
/* Returns 0 or -EPROTO. */
int pty_request_parse(const struct frame *f, struct pty_request *out, struct err *e);

#endif
