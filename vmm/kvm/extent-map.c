// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/extent-map.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"

/* --- Extents --- */

int extents_add(struct extents *r, uint64_t offset, uint64_t bytes)
{
	struct extent *last = r->n ? &r->extent[r->n - 1] : NULL;
	int result;

	if (last && last->offset + last->bytes == offset) {
		last->bytes += bytes;
		return 0;
	}
	result = array_grow(&r->extent, &r->room, (size_t)r->n + 1, sizeof(*r->extent));
	if (!result)
		r->extent[r->n++] = (struct extent){.offset = offset, .bytes = bytes};
	return result;
}

void extents_free(struct extents *r)
{
	free(r->extent);
	*r = (struct extents){0};
}

uint64_t extents_bytes(const struct extents *r)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < r->n; i++)
		sum += r->extent[i].bytes;
	return sum;
}

static uint64_t gap_before(const struct extents *r, uint32_t i)
{
	return r->extent[i].offset - (r->extent[i - 1].offset + r->extent[i - 1].bytes);
}

static uint32_t count_joined(const struct extents *r, uint64_t gap)
{
	uint32_t n = r->n ? 1 : 0;

	for (uint32_t i = 1; i < r->n; i++)
		n += gap_before(r, i) >= gap;
	return n;
}

int extents_join(struct extents *out, const struct extents *in, uint64_t gap, uint32_t most)
{
	int r = 0;

	while (count_joined(in, gap) > most)
		gap = gap ? gap * 2 : RAM_PAGE;
	for (uint32_t i = 0; i < in->n && !r; i++) {
		const struct extent *extent = &in->extent[i];
		struct extent *last = i ? &out->extent[out->n - 1] : NULL;

		if (i && gap_before(in, i) < gap)
			last->bytes = extent->offset + extent->bytes - last->offset;
		else
			r = extents_add(out, extent->offset, extent->bytes);
	}
	return r;
}

/* --- Extent maps --- */

int extent_map_add(struct extent_map *out, const struct mapping *p)
{
	struct mapping *last = out->n ? &out->mapping[out->n - 1] : NULL;
	int r;

	if (last && last->file == p->file && last->offset + last->bytes == p->offset &&
	    last->at + last->bytes == p->at) {
		last->bytes += p->bytes;
		return 0;
	}
	r = array_grow(&out->mapping, &out->room, (size_t)out->n + 1, sizeof(*out->mapping));
	if (!r)
		out->mapping[out->n++] = *p;
	return r;
}

int extent_map_cut(struct extent_map *out, const struct extent_map *from, uint32_t *next,
		   uint64_t start, uint64_t end)
{
	int r = 0;

	for (; *next < from->n && !r; ++*next) {
		const struct mapping *p = &from->mapping[*next];
		uint64_t p_end = p->offset + p->bytes;
		struct mapping cut = {.offset = p->offset > start ? p->offset : start,
				      .file = p->file};

		if (p->offset >= end)
			break;
		cut.bytes = (p_end < end ? p_end : end) - cut.offset;
		cut.at = p->at + (cut.offset - p->offset);
		if (p_end > start)
			r = extent_map_add(out, &cut);
		if (p_end > end)
			break;
	}
	return r;
}

int extent_map_cover(struct extent_map *out, const struct extent_map *below,
		     const struct extents *extents, uint32_t file, uint64_t at)
{
	uint64_t covered = 0;
	uint32_t next = 0;
	int r = 0;

	for (uint32_t i = 0; i < extents->n && !r; i++) {
		struct mapping p = {.offset = extents->extent[i].offset,
				    .bytes = extents->extent[i].bytes,
				    .at = at,
				    .file = file};

		r = extent_map_cut(out, below, &next, covered, p.offset);
		if (!r)
			r = extent_map_add(out, &p);
		covered = p.offset + p.bytes;
		at += p.bytes;
	}
	return r ? r : extent_map_cut(out, below, &next, covered, UINT64_MAX);
}

int extent_map_replace(struct extent_map *out, const struct extent_map *below,
		       const struct extents *extents, const struct extent_map *from)
{
	uint32_t next = 0, next_from = 0;
	uint64_t at = 0;
	int r = 0;

	for (uint32_t i = 0; i < extents->n && !r; i++) {
		uint64_t start = extents->extent[i].offset, end = start + extents->extent[i].bytes;

		r = extent_map_cut(out, below, &next, at, start);
		if (!r)
			r = extent_map_cut(out, from, &next_from, start, end);
		at = end;
	}
	return r ? r : extent_map_cut(out, below, &next, at, UINT64_MAX);
}

int extent_map_extents(struct extents *out, const struct extent_map *o)
{
	int r = 0;

	for (uint32_t i = 0; i < o->n && !r; i++)
		r = extents_add(out, o->mapping[i].offset, o->mapping[i].bytes);
	return r;
}

uint32_t extent_map_find(const struct extent_map *o, uint64_t offset)
{
	uint32_t low = 0, high = o->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (o->mapping[mid].offset + o->mapping[mid].bytes > offset)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

uint32_t extent_map_at(const struct extent_map *o, uint64_t start, uint64_t *end, uint64_t *at)
{
	uint32_t i = extent_map_find(o, start);
	const struct mapping *p = i < o->n ? &o->mapping[i] : NULL;
	bool in_mapping = p && p->offset <= start;
	uint64_t edge = *end;

	if (p)
		edge = in_mapping ? p->offset + p->bytes : p->offset;
	if (edge < *end)
		*end = edge;
	*at = in_mapping ? p->at + (start - p->offset) : start;
	return in_mapping ? p->file : 0;
}

void extent_map_take(struct extent_map *old, struct extent_map *new)
{
	extent_map_free(old);
	*old = *new;
	*new = (struct extent_map){0};
}

void extent_map_free(struct extent_map *o)
{
	free(o->mapping);
	*o = (struct extent_map){0};
}
