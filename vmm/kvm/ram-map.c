// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

/* A piece is up to two maps, itself and what follows it; a process may have 65,530. */
#define PIECES_MAX 24000u

/* Shown first when more is our own than shall be left so. */
#define LONG_RUN (16u * RAM_PAGE)

/* Pieces of layers that are gone from the image, remapped in one freeze at least. */
#define RETIRED_MIN 32u

static int map_file(const struct ram *r, uint32_t file, uint64_t start, uint64_t end, uint64_t at,
		    struct err *e)
{
	if (mmap(r->gm->base + start, end - start, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, ram_file(r, file),
		 (off_t)at) == MAP_FAILED)
		return err_set(e, errno, "map a memory layer");
	return 0;
}

static int map_run(const struct ram *r, const struct run *run, struct err *e)
{
	uint64_t at = run->offset, end = at + run->bytes;
	int result = 0;

	for (uint32_t i = overlay_find(&r->image, at); at < end && !result; i++) {
		const struct piece *p = i < r->image.n ? &r->image.piece[i] : NULL;
		uint64_t start = p && p->offset < end ? p->offset : end;
		uint64_t stop = start < end ? p->offset + p->bytes : end;

		if (stop > end)
			stop = end;
		if (start < at)
			start = at;
		if (at < start)
			result = map_file(r, RAM_MEMORY_FILE, at, start, at, e);
		if (!result && start < stop)
			result = map_file(r, p->file, start, stop, p->at + (start - p->offset), e);
		at = stop;
	}
	return result;
}

int ram_show(struct ram *r, const struct runs *where, struct err *e)
{
	struct overlay mapped = {0};
	int result = 0;

	if (overlay_replace(&mapped, &r->mapped, where, &r->image))
		result = err_set(e, ENOMEM, "list what is mapped");
	else if (mapped.n > PIECES_MAX)
		result = err_say(e, E2BIG, "RAM would be mapped in %u pieces; the limit is %u",
				 mapped.n, PIECES_MAX);
	for (uint32_t i = 0; i < where->n && !result; i++)
		result = map_run(r, &where->run[i], e);
	if (!result)
		overlay_take(&r->mapped, &mapped);
	overlay_free(&mapped);
	return result;
}

/* Pieces of at least how many bytes are to be mapped. */
static uint64_t worth_showing(const struct ram *r, const struct overlay *pieces)
{
	uint64_t least = UINT64_MAX, left;

	for (;; least = least == UINT64_MAX ? LONG_RUN : least / 2) {
		left = 0;
		for (uint32_t i = 0; i < pieces->n; i++)
			if (pieces->piece[i].bytes < least)
				left += pieces->piece[i].bytes;
		if (left <= r->left_max)
			return least;
	}
}

/* As the image has them: a run may be in several layers by now. */
static int pieces_in(const struct ram *r, const struct runs *runs, struct overlay *out)
{
	uint32_t next = 0;
	int result = 0;

	for (uint32_t i = 0; i < runs->n && !result; i++)
		result = overlay_cut(out, &r->image, &next, runs->run[i].offset,
				     runs->run[i].offset + runs->run[i].bytes);
	return result;
}

void ram_show_long(struct ram *r, const struct runs *runs)
{
	struct overlay pieces = {0};
	struct runs worth = {0};
	int result = pieces_in(r, runs, &pieces);
	uint64_t least = result ? 0 : worth_showing(r, &pieces), shown = 0;

	for (uint32_t i = 0; i < pieces.n && shown < r->show_max && !result; i++) {
		const struct piece *p = &pieces.piece[i];
		uint64_t room = r->show_max - shown;

		if (p->bytes < least)
			continue;
		result = runs_add(&worth, p->offset, p->bytes < room ? p->bytes : room);
		shown += p->bytes < room ? p->bytes : room;
	}
	/* When it can't be done the pages stay our own. */
	if (!result && worth.n)
		ram_show(r, &worth, NULL);
	runs_free(&worth);
	overlay_free(&pieces);
}

void ram_show_retired(struct ram *r)
{
	uint32_t budget = RETIRED_MIN + r->mapped.n / 8;
	struct runs retired = {0};
	int result = 0;

	for (uint32_t i = 0; i < r->mapped.n && budget && !result; i++) {
		const struct piece *p = &r->mapped.piece[i];

		if (ram_position(r, p->file) >= 0)
			continue;
		result = runs_add(&retired, p->offset, p->bytes);
		budget--;
	}
	if (!result && retired.n)
		ram_show(r, &retired, NULL);
	runs_free(&retired);
}
