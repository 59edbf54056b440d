// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/overlay.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM_MIN 64

/* Room for one more of `size` bytes each; the array may move. */
static int grow(void **array, uint32_t *room, uint32_t n, size_t size)
{
	uint32_t wanted = *room ? *room * 2 : ROOM_MIN;
	void *p;

	if (n < *room)
		return 0;
	if (wanted < *room)
		return -ENOMEM;
	p = reallocarray(*array, wanted, size);
	if (!p)
		return -ENOMEM;
	*array = p;
	*room = wanted;
	return 0;
}

/* --- Runs --- */

int runs_add(struct runs *r, uint64_t offset, uint64_t bytes)
{
	struct run *last = r->n ? &r->run[r->n - 1] : NULL;
	void *array = r->run;
	int result;

	if (last && last->offset + last->bytes == offset) {
		last->bytes += bytes;
		return 0;
	}
	result = grow(&array, &r->room, r->n, sizeof(*r->run));
	r->run = array;
	if (!result)
		r->run[r->n++] = (struct run){.offset = offset, .bytes = bytes};
	return result;
}

void runs_free(struct runs *r)
{
	free(r->run);
	*r = (struct runs){0};
}

uint64_t runs_bytes(const struct runs *r)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < r->n; i++)
		sum += r->run[i].bytes;
	return sum;
}

static uint64_t gap_before(const struct runs *r, uint32_t i)
{
	return r->run[i].offset - (r->run[i - 1].offset + r->run[i - 1].bytes);
}

static uint32_t count_joined(const struct runs *r, uint64_t gap)
{
	uint32_t n = r->n ? 1 : 0;

	for (uint32_t i = 1; i < r->n; i++)
		n += gap_before(r, i) >= gap;
	return n;
}

int runs_join(struct runs *out, const struct runs *in, uint64_t gap, uint32_t most)
{
	int r = 0;

	while (count_joined(in, gap) > most)
		gap = gap ? gap * 2 : RAM_PAGE;
	for (uint32_t i = 0; i < in->n && !r; i++) {
		const struct run *run = &in->run[i];
		struct run *last = i ? &out->run[out->n - 1] : NULL;

		if (i && gap_before(in, i) < gap)
			last->bytes = run->offset + run->bytes - last->offset;
		else
			r = runs_add(out, run->offset, run->bytes);
	}
	return r;
}

/* --- Overlays --- */

int overlay_add(struct overlay *out, const struct piece *p)
{
	struct piece *last = out->n ? &out->piece[out->n - 1] : NULL;
	void *array = out->piece;
	int r;

	if (last && last->file == p->file && last->offset + last->bytes == p->offset &&
	    last->at + last->bytes == p->at) {
		last->bytes += p->bytes;
		return 0;
	}
	r = grow(&array, &out->room, out->n, sizeof(*out->piece));
	out->piece = array;
	if (!r)
		out->piece[out->n++] = *p;
	return r;
}

int overlay_cut(struct overlay *out, const struct overlay *from, uint32_t *next, uint64_t start,
		uint64_t end)
{
	int r = 0;

	for (; *next < from->n && !r; ++*next) {
		const struct piece *p = &from->piece[*next];
		uint64_t p_end = p->offset + p->bytes;
		struct piece cut = {.offset = p->offset > start ? p->offset : start,
				    .file = p->file};

		if (p->offset >= end)
			break;
		cut.bytes = (p_end < end ? p_end : end) - cut.offset;
		cut.at = p->at + (cut.offset - p->offset);
		if (p_end > start)
			r = overlay_add(out, &cut);
		if (p_end > end)
			break;
	}
	return r;
}

int overlay_cover(struct overlay *out, const struct overlay *below, const struct runs *runs,
		  uint32_t file, uint64_t at)
{
	uint64_t covered = 0;
	uint32_t next = 0;
	int r = 0;

	for (uint32_t i = 0; i < runs->n && !r; i++) {
		struct piece p = {.offset = runs->run[i].offset,
				  .bytes = runs->run[i].bytes,
				  .at = at,
				  .file = file};

		r = overlay_cut(out, below, &next, covered, p.offset);
		if (!r)
			r = overlay_add(out, &p);
		covered = p.offset + p.bytes;
		at += p.bytes;
	}
	return r ? r : overlay_cut(out, below, &next, covered, UINT64_MAX);
}

int overlay_replace(struct overlay *out, const struct overlay *below, const struct runs *runs,
		    const struct overlay *from)
{
	uint32_t next = 0, next_from = 0;
	uint64_t at = 0;
	int r = 0;

	for (uint32_t i = 0; i < runs->n && !r; i++) {
		uint64_t start = runs->run[i].offset, end = start + runs->run[i].bytes;

		r = overlay_cut(out, below, &next, at, start);
		if (!r)
			r = overlay_cut(out, from, &next_from, start, end);
		at = end;
	}
	return r ? r : overlay_cut(out, below, &next, at, UINT64_MAX);
}

int overlay_runs(struct runs *out, const struct overlay *o)
{
	int r = 0;

	for (uint32_t i = 0; i < o->n && !r; i++)
		r = runs_add(out, o->piece[i].offset, o->piece[i].bytes);
	return r;
}

uint32_t overlay_find(const struct overlay *o, uint64_t offset)
{
	uint32_t low = 0, high = o->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (o->piece[mid].offset + o->piece[mid].bytes > offset)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

void overlay_take(struct overlay *old, struct overlay *new)
{
	overlay_free(old);
	*old = *new;
	*new = (struct overlay){0};
}

void overlay_free(struct overlay *o)
{
	free(o->piece);
	*o = (struct overlay){0};
}
