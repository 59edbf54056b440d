// SPDX-License-Identifier: Apache-2.0
/* The payloads of the requests on files (proto/agent.h): for each type, its fields in order. */
#ifndef RAMET_PROTO_AGENT_FILE_H
#define RAMET_PROTO_AGENT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/agent.h"

/* Numbers have 32 bits; OFFSET and SIZE have 64, FLAG and HOW have 8. OWNER is uid and gid. */
enum agent_file_field {
	FIELD_END,
	FIELD_OFFSET,
	FIELD_SIZE,
	FIELD_MODE,
	FIELD_FLAG,
	FIELD_PATH,
	FIELD_TO,
	FIELD_NEW_MODE, /* or AGENT_UNCHANGED */
	FIELD_OWNER,
	FIELD_DEPTH,
	FIELD_LIMIT,
	FIELD_AFTER,
	FIELD_HOW,
};

#define AGENT_FILE_FIELDS_MAX 5

/* All requests on files. Each has a function serve_NAME in guest/files (file-work.h). */
#define AGENT_FILE_REQUESTS(X)                                                                     \
	X(AGENT_PUT, put, FIELD_SIZE, FIELD_MODE, FIELD_PATH)                                      \
	X(AGENT_GET, get, FIELD_OFFSET, FIELD_SIZE, FIELD_PATH)                                    \
	X(AGENT_REMOVE, remove, FIELD_FLAG, FIELD_PATH)                                            \
	X(AGENT_MKDIR, mkdir, FIELD_MODE, FIELD_FLAG, FIELD_PATH)                                  \
	X(AGENT_GROW, grow, FIELD_SIZE)                                                            \
	X(AGENT_MOVE, move, FIELD_FLAG, FIELD_PATH, FIELD_TO)                                      \
	X(AGENT_CHANGE, change, FIELD_NEW_MODE, FIELD_OWNER, FIELD_FLAG, FIELD_PATH)               \
	X(AGENT_WALK, walk, FIELD_FLAG, FIELD_DEPTH, FIELD_LIMIT, FIELD_PATH, FIELD_AFTER)         \
	X(AGENT_WRITE, write, FIELD_HOW, FIELD_OFFSET, FIELD_SIZE, FIELD_MODE, FIELD_PATH)         \
	X(AGENT_PACK, pack, FIELD_PATH)                                                            \
	X(AGENT_UNPACK, unpack, FIELD_SIZE, FIELD_PATH)                                            \
	X(AGENT_WATCH, watch, FIELD_FLAG, FIELD_PATH)

/* A type without a name is not a request on files. */
static const struct agent_file_layout {
	const char *name;
	enum agent_file_field fields[AGENT_FILE_FIELDS_MAX + 1]; /* up to FIELD_END */
} agent_file_layouts[] = {
#define LAYOUT(type, name, ...) [type] = {#name, {__VA_ARGS__}},
	AGENT_FILE_REQUESTS(LAYOUT)
#undef LAYOUT
};

static inline bool agent_file_is(uint8_t type)
{
	return type < sizeof(agent_file_layouts) / sizeof(agent_file_layouts[0]) &&
	       agent_file_layouts[type].name;
}

#endif
