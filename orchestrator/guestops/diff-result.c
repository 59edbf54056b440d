// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/guestops/diff-result.h"

#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Requested paths may contain each other, so a path may have been found twice. */
static void sort_once(struct diff_found *f)
{
	size_t kept = 0;

	if (f->n)
		qsort(f->paths, f->n, sizeof(*f->paths), by_bytes);
	for (size_t i = 0; i < f->n; i++) {
		if (kept && strcmp(f->paths[kept - 1], f->paths[i]) == 0)
			free(f->paths[i]);
		else
			f->paths[kept++] = f->paths[i];
	}
	f->n = kept;
}

void core_diff_sort(struct core_diff *d)
{
	for (int kind = 0; kind < DIFF_NKINDS; kind++)
		sort_once(&d->found[kind]);
}

void core_diff_free(struct core_diff *d)
{
	for (int kind = 0; d && kind < DIFF_NKINDS; kind++) {
		for (size_t i = 0; i < d->found[kind].n; i++)
			free(d->found[kind].paths[i]);
		free(d->found[kind].paths);
	}
	free(d);
}
