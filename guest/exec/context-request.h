// SPDX-License-Identifier: Apache-2.0
/* Parses requests on contexts, and trusts nothing in them. */
#ifndef RAMET_GUEST_EXEC_CONTEXT_REQUEST_H
#define RAMET_GUEST_EXEC_CONTEXT_REQUEST_H

#include <stdbool.h>

#include "guest/frame.h"

struct context_request {
	enum agent_request type;
	char id[AGENT_ID_LEN + 1]; /* empty in AGENT_CONTEXT_LIST */
	/* AGENT_CONTEXT_START */
	enum agent_language language;
	char cwd[AGENT_PATH_MAX + 1];
	size_t env; /* offset of the first variable in the payload */
	uint32_t env_count;
	/* AGENT_IN_CONTEXT: the request in it, whose payload is inside this one */
	struct frame inner;
};

bool context_request_is(uint8_t type);
/* Parses and checks the whole payload, except the payload of an inner request. Returns 0 or
 * -EPROTO.
 */
int context_request_parse(const struct frame *f, struct context_request *out, struct err *e);

#endif
