// SPDX-License-Identifier: Apache-2.0
/* The payloads of the requests on files (proto/agent.h): for each type, its fields in order. */
#ifndef RAMET_PROTO_AGENT_FILE_H
#define RAMET_PROTO_AGENT_FILE_H

#include "proto/agent.h"

/* Numbers are of 32 bits; OFFSET and SIZE have 64, FLAG and HOW have 8. OWNER is uid and gid. */
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

/* A type without a name is not a request on files. */
static const struct agent_file_layout {
	const char *name;
	enum agent_file_field fields[AGENT_FILE_FIELDS_MAX + 1]; /* up to FIELD_END */
} agent_file_layouts[] = {
	[AGENT_PUT] = {"put", {FIELD_SIZE, FIELD_MODE, FIELD_PATH}},
	[AGENT_GET] = {"get", {FIELD_OFFSET, FIELD_SIZE, FIELD_PATH}},
	[AGENT_REMOVE] = {"remove", {FIELD_FLAG, FIELD_PATH}},
	[AGENT_MKDIR] = {"mkdir", {FIELD_MODE, FIELD_FLAG, FIELD_PATH}},
	[AGENT_GROW] = {"grow", {FIELD_SIZE}},
	[AGENT_MOVE] = {"move", {FIELD_FLAG, FIELD_PATH, FIELD_TO}},
	[AGENT_CHANGE] = {"change", {FIELD_NEW_MODE, FIELD_OWNER, FIELD_FLAG, FIELD_PATH}},
	[AGENT_WALK] = {"walk", {FIELD_FLAG, FIELD_DEPTH, FIELD_LIMIT, FIELD_PATH, FIELD_AFTER}},
	[AGENT_WRITE] = {"write", {FIELD_HOW, FIELD_OFFSET, FIELD_SIZE, FIELD_MODE, FIELD_PATH}},
	[AGENT_PACK] = {"pack", {FIELD_PATH}},
	[AGENT_UNPACK] = {"unpack", {FIELD_SIZE, FIELD_PATH}},
	[AGENT_WATCH] = {"watch", {FIELD_FLAG, FIELD_PATH}},
};

#endif
