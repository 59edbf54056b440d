// SPDX-License-Identifier: Apache-2.0
/* Parses the requests on processes, AGENT_PROC_*, and trusts nothing in them. */
#ifndef RAMET_GUEST_PROCESS_PROCESS_REQUEST_H
#define RAMET_GUEST_PROCESS_PROCESS_REQUEST_H

#include <stdbool.h>

#include "guest/frame.h"

#define PROCESS_ARGS_MAX 4096u
#define SIGNAL_MAX	 64

/* Fields that the type does not have are zero. `rest`, `args` and `variables` are offsets in the
 * payload. */
struct process_request {
	uint8_t type;
	char id[AGENT_ID_LEN + 1];
	uint8_t flags; /* START */
	uint16_t cols, rows;
	uint32_t timeout_ms;
	uint64_t offset;  /* ATTACH */
	bool holds;	  /* ATTACH */
	uint8_t signal;	  /* SIGNAL */
	size_t rest;	  /* INPUT: the bytes to write */
	uint32_t argc;	  /* START: at least 1 */
	size_t args;	  /* argc times str */
	uint32_t env;	  /* START: number of variables */
	size_t variables; /* `env` times str name, str value */
	char cwd[AGENT_PATH_MAX + 1];
	char user[AGENT_USER_MAX + 1];
	char label[AGENT_LABEL_MAX + 1];
};

/* Returns true for the types that process_request_parse accepts: all but AGENT_PROC_LIST, which has
 * no payload. */
bool process_request_is(uint8_t type);
/* Returns 0 or -EPROTO. */
int process_request_parse(const struct frame *f, struct process_request *out, struct err *e);

#endif
