// SPDX-License-Identifier: Apache-2.0
/* The requests about files, AGENT_PUT to AGENT_ABORT and AGENT_GROW, taken apart with nothing
 * believed. */
#ifndef RAMET_GUEST_FILE_REQUEST_H
#define RAMET_GUEST_FILE_REQUEST_H

#include <stdbool.h>

#include "guest/frame.h"

/* What the type has no field for is zero. */
struct file_request {
	uint8_t type;  /* AGENT_PUT, … */
	bool flag;     /* STAT: of a link itself; REMOVE: with all in it; MKDIR: parents too */
	bool has_hash; /* COMMIT */
	uint32_t mode; /* permissions only, 0: the default */
	uint64_t offset;
	uint64_t size; /* PUT, PART: bytes that follow; COMMIT, GROW: of the whole; GET: at most */
	char id[AGENT_ID_LEN + 1];
	uint8_t hash[AGENT_HASH_LEN];
	char path[AGENT_PATH_MAX + 1]; /* absolute */
};

/* True for the types that file_request_parse takes. */
bool file_request_is(uint8_t type);
/* 0, or -EPROTO with a sentence. */
int file_request_parse(const struct frame *f, struct file_request *out, struct err *e);

#endif
