// SPDX-License-Identifier: Apache-2.0
/* The result of a diff: up to 200,000 paths. */
#ifndef RAMET_ORCHESTRATOR_GUESTOPS_DIFF_RESULT_H
#define RAMET_ORCHESTRATOR_GUESTOPS_DIFF_RESULT_H

#include <stddef.h>

enum diff_kind { DIFF_ADDED, DIFF_REMOVED, DIFF_MODIFIED, DIFF_NKINDS };

struct diff_found {
	char **paths;
	size_t n, room;
};

struct service_diff {
	struct diff_found found[DIFF_NKINDS];
	size_t n, bytes; /* of all paths */
	/* the last chunk of paths, which points to the chunks before it */
	struct diff_chunk *chunk;
};

/* Adds a path, of which it makes a copy. Returns 0 or -ENOMEM. */
int service_diff_add(struct service_diff *d, enum diff_kind kind, const void *path, size_t len);
/* Sorts the paths of each kind bytewise, and removes duplicates. This takes up to hundreds of
 * milliseconds: for many paths, call it on a worker thread. */
void service_diff_sort(struct service_diff *d);
/* NULL is fine. */
void service_diff_free(struct service_diff *d);

#endif
