// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

/*
 * A mapping takes up to two of the process's maps: one for itself and one for the rest of the map
 * that it splits. A process may have 65,530 (vm.max_map_count).
 */
#define MAPPINGS_MAX 24000u

/* Extents of at least this size are mapped first when there are more own pages than keep_max. */
#define LONG_EXTENT (16u * RAM_PAGE)

/* A freeze remaps this many mappings of retired layers, plus an eighth of the number of all. */
#define RETIRED_MIN 32u

static int map_extent(const struct ram *r, const struct extent *extent, struct err *e)
{
	uint64_t at = extent->offset, end = at + extent->bytes;
	int result = 0;

	while (at < end && !result) {
		uint64_t stop = end, from;
		uint32_t file = extent_map_at(&r->snapshot, at, &stop, &from);

		result = gm_map(r->gm, at, stop, MAP_PRIVATE, ram_file(r, file), from, e);
		at = stop;
	}
	return result;
}

int ram_map_snapshot(struct ram *r, const struct extents *where, struct err *e)
{
	struct extent_map mapped = {0};
	int result = 0;

	if (extent_map_replace(&mapped, &r->mapped, where, &r->snapshot))
		result = err_set(e, ENOMEM, "list what is mapped");
	else if (mapped.n > MAPPINGS_MAX)
		result = err_say(e, E2BIG, "RAM would need %u mappings; the limit is %u", mapped.n,
				 MAPPINGS_MAX);
	for (uint32_t i = 0; i < where->n && !result; i++)
		result = map_extent(r, &where->extent[i], e);
	if (!result) {
		extent_map_take(&r->mapped, &mapped);
		watch_mapped(r, where);
	}
	extent_map_free(&mapped);
	return result;
}

/*
 * Returns the minimum size of the mappings to map, so that at most keep_max bytes stay own pages.
 */
static uint64_t min_mapped_bytes(const struct ram *r, const struct extent_map *mappings)
{
	uint64_t least = UINT64_MAX, left;

	for (;; least = least == UINT64_MAX ? LONG_EXTENT : least / 2) {
		left = 0;
		for (uint32_t i = 0; i < mappings->n; i++)
			if (mappings->mapping[i].bytes < least)
				left += mappings->mapping[i].bytes;
		if (left <= r->keep_max)
			return least;
	}
}

/* Splits the extents by layer: an extent may be in several layers by now. */
static int mappings_in(const struct ram *r, const struct extents *extents, struct extent_map *out)
{
	uint32_t next = 0;
	int result = 0;

	for (uint32_t i = 0; i < extents->n && !result; i++)
		result = extent_map_cut(out, &r->snapshot, &next, extents->extent[i].offset,
					extents->extent[i].offset + extents->extent[i].bytes);
	return result;
}

void ram_map_long_extents(struct ram *r, const struct extents *extents)
{
	struct extent_map mappings = {0};
	struct extents worth = {0};
	int result = mappings_in(r, extents, &mappings);
	uint64_t least = result ? 0 : min_mapped_bytes(r, &mappings), shown = 0;

	for (uint32_t i = 0; i < mappings.n && shown < r->map_max && !result; i++) {
		const struct mapping *p = &mappings.mapping[i];
		uint64_t room = r->map_max - shown;

		if (p->bytes < least)
			continue;
		result = extents_add(&worth, p->offset, p->bytes < room ? p->bytes : room);
		shown += p->bytes < room ? p->bytes : room;
	}
	/* After a failure, the pages stay own pages, and the next freeze compares them again. */
	if (!result && worth.n)
		ram_map_snapshot(r, &worth, NULL);
	extents_free(&worth);
	extent_map_free(&mappings);
}

void ram_remap_retired(struct ram *r)
{
	uint32_t budget = RETIRED_MIN + r->mapped.n / 8;
	struct extents retired = {0};
	int result = 0;

	for (uint32_t i = 0; i < r->mapped.n && budget && !result; i++) {
		const struct mapping *p = &r->mapped.mapping[i];

		if (ram_position(r, p->file) >= 0)
			continue;
		result = extents_add(&retired, p->offset, p->bytes);
		budget--;
	}
	if (!result && retired.n)
		ram_map_snapshot(r, &retired, NULL);
	extents_free(&retired);
}
