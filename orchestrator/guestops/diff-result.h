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

struct core_diff {
	struct diff_found found[DIFF_NKINDS];
	size_t n, bytes; /* of all paths */
};

/* These take up to hundreds of milliseconds: for many paths, call them on a worker thread. */

/* Sorts the paths of each kind bytewise, and removes duplicates. */
void core_diff_sort(struct core_diff *d);
/* NULL is fine. */
void core_diff_free(struct core_diff *d);

#endif
