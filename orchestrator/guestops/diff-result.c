// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/guestops/diff-result.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define CHUNK_BYTES (256u << 10)

/* Paths, one after the other. To free each by itself would hold the loop for long. */
struct diff_chunk {
	struct diff_chunk *before;
	size_t used;
	char bytes[CHUNK_BYTES];
};

/* Returns room for a path; NULL when out of memory. */
static char *take_room(struct service_diff *d, size_t len)
{
	struct diff_chunk *chunk = d->chunk;

	if (!chunk || CHUNK_BYTES - chunk->used < len) {
		chunk = malloc(sizeof(*chunk));
		if (!chunk)
			return NULL;
		chunk->before = d->chunk;
		chunk->used = 0;
		d->chunk = chunk;
	}
	char *at = chunk->bytes + chunk->used;
	chunk->used += len;
	return at;
}

int service_diff_add(struct service_diff *d, enum diff_kind kind, const void *path, size_t len)
{
	struct diff_found *f = &d->found[kind];

	if (array_grow(&f->paths, &f->room, f->n + 1, sizeof(*f->paths)) < 0)
		return -ENOMEM;
	char *copy = len < CHUNK_BYTES ? take_room(d, len + 1) : NULL;
	if (!copy)
		return -ENOMEM;
	memcpy(copy, path, len);
	copy[len] = 0;
	f->paths[f->n++] = copy;
	d->n++;
	d->bytes += len;
	return 0;
}

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
	for (size_t i = 0; i < f->n; i++)
		if (!kept || strcmp(f->paths[kept - 1], f->paths[i]) != 0)
			f->paths[kept++] = f->paths[i];
	f->n = kept;
}

void service_diff_sort(struct service_diff *d)
{
	for (int kind = 0; kind < DIFF_NKINDS; kind++)
		sort_once(&d->found[kind]);
}

void service_diff_free(struct service_diff *d)
{
	if (!d)
		return;
	for (int kind = 0; kind < DIFF_NKINDS; kind++)
		free(d->found[kind].paths);
	while (d->chunk) {
		struct diff_chunk *chunk = d->chunk;

		d->chunk = chunk->before;
		free(chunk);
	}
	free(d);
}
