// SPDX-License-Identifier: Apache-2.0
/*
 * A walk down folders in a worker: the folders from the first one to the current one, with the
 * names in each that are still to be visited, in byte order. Needs memory for the names in these
 * folders, at most NAMES_MAX bytes and half as much again to sort them, and an open descriptor for
 * each folder. Failures are answered, and end the worker (worker-io.h).
 */
#ifndef RAMET_GUEST_FILES_DESCENT_H
#define RAMET_GUEST_FILES_DESCENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/agent.h"

#define NAMES_MAX (64u << 20)
/* So that a path and the target of a link fit in one frame. */
#define DESCENT_PATH_MAX (AGENT_PAYLOAD_MAX - AGENT_PATH_MAX - 64)

/* A folder that is being visited. */
struct level {
	int fd;
	size_t path_len;    /* length of the folder's path in descent.path */
	size_t names_len;   /* length of descent.names before this folder's names */
	size_t first, next; /* indices in descent.order: its first name, and the next to visit */
};

/* Starts zeroed. */
struct descent {
	size_t path_len;
	char path[DESCENT_PATH_MAX + 1]; /* of what is visited now */
	struct level *levels;
	size_t depth, levels_room;
	char *names; /* of all levels: zero-terminated, one after the other */
	size_t names_len, names_room;
	uint32_t *order; /* offsets in names, sorted within each level */
	size_t count, order_room;
};

/* Takes the open folder whose path is d->path, and reads its names. */
void descent_enter(struct descent *d, int fd);
/* Returns the next name in the current folder, valid until descent_enter, and sets *folder to its
 * descriptor. After the last name, returns to the folder above and returns NULL. */
const char *descent_next(struct descent *d, int *folder);
/* Sets d->path to that of a name in the current folder. Returns false for a path of more than `max`
 * bytes, at most DESCENT_PATH_MAX. */
bool descent_set_path(struct descent *d, const char *name, size_t max);

#endif
