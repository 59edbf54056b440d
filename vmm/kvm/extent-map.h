// SPDX-License-Identifier: Apache-2.0
/*
 * Extents of guest RAM and maps of extents to files. Both are sorted, without overlaps, and in
 * whole pages.
 */
#ifndef RAMET_VMM_KVM_EXTENT_MAP_H
#define RAMET_VMM_KVM_EXTENT_MAP_H

#include <stddef.h>
#include <stdint.h>

#define RAM_PAGE 4096u

struct extent {
	uint64_t offset, bytes;
};

/* {0} is an empty list. */
struct extents {
	struct extent *extent;
	size_t room;
	uint32_t n; /* at most one for each page of RAM */
};

/*
 * Appends an extent. `offset` is not before the end of the last extent; an adjacent extent is
 * merged with it. Returns 0 or -ENOMEM.
 */
int extents_add(struct extents *r, uint64_t offset, uint64_t bytes);
void extents_free(struct extents *r);
uint64_t extents_bytes(const struct extents *r);

/*
 * Merges the extents of `in` that are less than `gap` bytes apart, and stores the result in `out`,
 * which is empty before. Widens the gap until at most `most` extents (not 0) are left. Returns 0 or
 * -ENOMEM.
 */
int extents_join(struct extents *out, const struct extents *in, uint64_t gap, uint32_t most);

/* Maps an extent of RAM to the file with the number `file`, from its byte `at` on. */
struct mapping {
	uint64_t offset, bytes;
	uint64_t at;
	uint32_t file;
};

/* The extents of RAM that are not in the memory file but in a layer. {0} is an empty map. */
struct extent_map {
	struct mapping *mapping;
	size_t room;
	uint32_t n;
};

/* Appends a mapping. Like the functions below, returns 0 or -ENOMEM. */
int extent_map_add(struct extent_map *out, const struct mapping *p);
/*
 * Appends the part of `from` that is in [start, end). *next is 0 before the first call and keeps
 * the position: the ranges of consecutive calls ascend.
 */
int extent_map_cut(struct extent_map *out, const struct extent_map *from, uint32_t *next,
		   uint64_t start, uint64_t end);
/*
 * Appends `below` to `out`, with `extents` over it. The extents are stored one after the other in
 * `file`, from byte `at` on.
 */
int extent_map_cover(struct extent_map *out, const struct extent_map *below,
		     const struct extents *extents, uint32_t file, uint64_t at);
/* Appends `below`, with the mappings inside `extents` taken from `from`. */
int extent_map_replace(struct extent_map *out, const struct extent_map *below,
		       const struct extents *extents, const struct extent_map *from);
/* Appends the mapped extents of `o` to `out`, whichever file they are in. Returns 0 or -ENOMEM. */
int extent_map_extents(struct extents *out, const struct extent_map *o);

/* Returns the index of the first mapping that ends after `offset`, or o->n when there is none. */
uint32_t extent_map_find(const struct extent_map *o, uint64_t offset);
/*
 * Returns the number of the file that holds offset `start`, and sets *at to the position in it. In
 * a gap between mappings that is 0, the memory file, and `start`. Lowers *end to the end of the
 * mapping or of the gap.
 */
uint32_t extent_map_at(const struct extent_map *o, uint64_t start, uint64_t *end, uint64_t *at);
/* Frees the content of `old` and moves the content of `new` into it. */
void extent_map_take(struct extent_map *old, struct extent_map *new);
void extent_map_free(struct extent_map *o);

#endif
