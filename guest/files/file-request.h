// SPDX-License-Identifier: Apache-2.0
/* Parses the requests on files (proto/agent-file.h), and trusts nothing in them. */
#ifndef RAMET_GUEST_FILES_FILE_REQUEST_H
#define RAMET_GUEST_FILES_FILE_REQUEST_H

#include <stdbool.h>

#include "guest/frame.h"

/* A parsed request. Fields that requests of its type do not have are zero. */
struct file_request {
	uint8_t type; /* AGENT_PUT, … */
	/* WALK: do not follow a symbolic link at the path; REMOVE, CHANGE, WATCH: include what is
	 * in the folder; MKDIR: make missing parents too; MOVE: replace an existing file */
	bool flag;
	uint32_t mode;	   /* permissions only; 0: the default; CHANGE: may be AGENT_UNCHANGED */
	uint32_t uid, gid; /* or AGENT_UNCHANGED */
	uint32_t depth, limit;
	enum agent_write how;
	uint64_t offset;
	/* PUT, WRITE, UNPACK: bytes of the data, or AGENT_UNSIZED; GROW: bytes of the disk; GET:
	 * most bytes to read */
	uint64_t size;
	char path[AGENT_PATH_MAX + 1], to[AGENT_PATH_MAX + 1]; /* absolute */
	char after[AGENT_NAME_MAX + 1]; /* WALK: the name to continue after; relative, or empty */
};

/* Parses a request for whose type agent_file_is is true. Returns 0 or -EPROTO. */
int file_request_parse(const struct frame *f, struct file_request *out, struct err *e);

#endif
