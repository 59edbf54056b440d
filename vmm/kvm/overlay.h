// SPDX-License-Identifier: Apache-2.0
/* Lists of stretches of guest RAM, all sorted and disjoint, in multiples of pages. */
#ifndef RAMET_VMM_KVM_OVERLAY_H
#define RAMET_VMM_KVM_OVERLAY_H

#include <stdint.h>

#define RAM_PAGE 4096u

struct run {
	uint64_t offset, bytes;
};

/* {0} is an empty list. */
struct runs {
	struct run *run;
	uint32_t n, room;
};

/* Appends; `offset` is not before the last run's end, and a run that touches it becomes part of
 * it. 0 or -ENOMEM. */
int runs_add(struct runs *r, uint64_t offset, uint64_t bytes);
void runs_free(struct runs *r);
uint64_t runs_bytes(const struct runs *r);

/*
 * The runs of `in`, those less than `gap` bytes apart made one. The gap is made greater until at
 * most `most` (not 0) are left. `out` is empty before. 0 or -ENOMEM.
 */
int runs_join(struct runs *out, const struct runs *in, uint64_t gap, uint32_t most);

/* What lies over the memory file: each piece is of the file with that number, from byte `at` of it
 * on. */
struct piece {
	uint64_t offset, bytes;
	uint64_t at;
	uint32_t file;
};

/* {0}: nothing lies over it. */
struct overlay {
	struct piece *piece;
	uint32_t n, room;
};

/* All of these append to `out`. 0 or -ENOMEM. */
int overlay_add(struct overlay *out, const struct piece *p);
/* What of `from` is in [start, end); *next, 0 at first, remembers where it was: the calls go up. */
int overlay_cut(struct overlay *out, const struct overlay *from, uint32_t *next, uint64_t start,
		uint64_t end);
/* `below` with `runs`, all of `file`, where they are one after the other from byte `at` on, laid
 * over it. */
int overlay_cover(struct overlay *out, const struct overlay *below, const struct runs *runs,
		  uint32_t file, uint64_t at);
/* `below`, but as `from` inside of `runs`. */
int overlay_replace(struct overlay *out, const struct overlay *below, const struct runs *runs,
		    const struct overlay *from);
/* Appends where there are pieces, whatever their file, to `out`. 0 or -ENOMEM. */
int overlay_runs(struct runs *out, const struct overlay *o);

/* The first piece that ends after `offset`; overlay's n: none. */
uint32_t overlay_find(const struct overlay *o, uint64_t offset);
/* Frees what `old` has and gives it what `new` has. */
void overlay_take(struct overlay *old, struct overlay *new);
void overlay_free(struct overlay *o);

#endif
