// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps the chain of layers short: merges the newest layers as long as the older ones are not much
 * bigger, so that each page is copied only a few times however long the VM lives. Existing
 * snapshots keep the old layers.
 */
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "proto/image.h"
#include "vmm/kvm/ram-table.h"

#define CHAIN_LONG 8u		/* layers: merging starts at this length */
#define WASTE_MIN  (16u << 20)	/* bytes in layers that newer layers hide */
#define SLICE	   (128u << 10) /* bytes copied in a step */

/*
 * Like RAM_JOIN_GAP, but wider: nobody waits for these copies, so copying more pages to need fewer
 * mappings pays off.
 */
#define FLATTEN_GAP (16u * RAM_PAGE)

/* --- Merging layers --- */

void flatten_stop(struct ram *r)
{
	struct flatten *f = &r->flat;

	close_fd(&f->fd);
	extents_free(&f->extents);
	extent_map_free(&f->source);
	*f = (struct flatten){.fd = -1, .failed = f->failed};
}

static bool is_between(const struct ram *r, uint32_t file, unsigned first, unsigned end)
{
	int at = ram_position(r, file);

	return at >= (int)first && at < (int)end;
}

/* Collects the mappings of the snapshot that are in the layers [first, end). */
static int mappings_of(struct extent_map *out, const struct ram *r, unsigned first, unsigned end)
{
	int result = 0;

	for (uint32_t i = 0; i < r->snapshot.n && !result; i++)
		if (is_between(r, r->snapshot.mapping[i].file, first, end))
			result = extent_map_add(out, &r->snapshot.mapping[i]);
	return result;
}

/*
 * Begins to merge the layers from `first` on. They are the newest, so the new layer needs only
 * their visible extents.
 */
static int begin(struct ram *r, unsigned first, uint32_t most, struct err *e)
{
	struct flatten *f = &r->flat;
	struct extent_map mappings = {0};
	struct extents extents = {0};
	uint32_t next = 0;
	int result;

	f->active = true;
	f->first = first;
	f->count = r->nlayers - first;
	result = mappings_of(&mappings, r, first, r->nlayers);
	if (!result)
		result = extent_map_extents(&extents, &mappings);
	if (!result)
		result = extents_join(&f->extents, &extents, FLATTEN_GAP, most);
	if (!result)
		result = extent_map_cut(&f->source, &r->snapshot, &next, 0, UINT64_MAX);
	extents_free(&extents);
	extent_map_free(&mappings);
	if (result)
		return err_set(e, ENOMEM, "list what the memory layers hold");
	f->to = ram_table_bytes(f->extents.n);
	f->fd = layer_create(e);
	return f->fd < 0 ? f->fd : 0;
}

static int copy_slice(struct ram *r, struct err *e)
{
	struct flatten *f = &r->flat;
	uint64_t left = SLICE;
	int result = 0;

	while (left && f->extent < f->extents.n && !result) {
		const struct extent *extent = &f->extents.extent[f->extent];
		uint64_t n = extent->bytes - f->at < left ? extent->bytes - f->at : left;
		uint64_t start = extent->offset + f->at;

		result = layer_copy_snapshot(r, &f->source, f->fd, f->to, start, start + n, e);
		f->to += n;
		left -= n;
		f->at += n;
		if (f->at == extent->bytes) {
			f->extent++;
			f->at = 0;
		}
	}
	if (result || f->extent < f->extents.n)
		return result;
	result = layer_finish(r, f->fd, &f->extents, e);
	f->done = !result;
	return result;
}

/* --- Adopting the merged layer --- */

/* Computes the extent map with the merged layer in place of the old ones. */
static int merge_extent_maps(struct extent_map *out, const struct ram *r, uint32_t file)
{
	const struct flatten *f = &r->flat;
	struct extent_map older = {0}, newer = {0}, covered = {0};
	struct extents above = {0};
	int result = mappings_of(&older, r, 0, f->first);

	if (!result)
		result = mappings_of(&newer, r, f->first + f->count, r->nlayers);
	if (!result)
		result = extent_map_extents(&above, &newer);
	if (!result)
		result = extent_map_cover(&covered, &older, &f->extents, file,
					  ram_table_bytes(f->extents.n));
	if (!result)
		result = extent_map_replace(out, &covered, &above, &newer);
	extent_map_free(&older);
	extent_map_free(&newer);
	extent_map_free(&covered);
	extents_free(&above);
	return result;
}

void flatten_adopt(struct ram *r)
{
	struct flatten *f = &r->flat;
	struct extent_map snapshot = {0};
	struct ram_layer *first = &r->layers[f->first];

	if (!f->done)
		return;
	if (merge_extent_maps(&snapshot, r, r->last_file + 1)) {
		extent_map_free(&snapshot);
		return; /* the next freeze tries again */
	}
	for (unsigned i = 0; i < f->count; i++)
		layer_close(&first[i]);
	memmove(first + 1, first + f->count, (r->nlayers - f->first - f->count) * sizeof(*first));
	r->nlayers -= f->count - 1;
	*first = (struct ram_layer){.file = ++r->last_file,
				    .fd = take_fd(&f->fd),
				    .bytes = extents_bytes(&f->extents),
				    .size = ram_table_bytes(f->extents.n) +
					    extents_bytes(&f->extents),
				    .own = true};
	extent_map_take(&r->snapshot, &snapshot);
	flatten_stop(r);
}

/* --- When to merge --- */

static void count_visible(const struct ram *r, uint64_t visible[CTL_MEMORY_MAX])
{
	memset(visible, 0, CTL_MEMORY_MAX * sizeof(*visible));
	for (uint32_t i = 0; i < r->snapshot.n; i++)
		visible[ram_position(r, r->snapshot.mapping[i].file)] +=
			r->snapshot.mapping[i].bytes;
}

void flatten_drop_hidden(struct ram *r)
{
	uint64_t visible[CTL_MEMORY_MAX];
	unsigned kept = 0;

	if (r->flat.active) /* the merge relies on the positions in the chain */
		return;
	count_visible(r, visible);
	for (unsigned i = 0; i < r->nlayers; i++) {
		if (visible[i])
			r->layers[kept++] = r->layers[i];
		else
			layer_retire(r, &r->layers[i]);
	}
	r->nlayers = kept;
}

/*
 * Returns the index of the oldest layer that is at most twice as big as all newer ones together, so
 * that each copy moves a page into a layer at least 1.5 times as big. If there is none, returns
 * that of the second newest: at least two layers are merged.
 */
static unsigned first_to_merge(const struct ram *r)
{
	unsigned first = r->nlayers - 2;
	uint64_t newer = 0;

	for (unsigned i = r->nlayers; i-- > 0;) {
		if (i < first && r->layers[i].bytes <= 2 * newer)
			first = i;
		newer += r->layers[i].bytes;
	}
	return first;
}

/*
 * True when a child would have to map so many mappings that a merge should also copy the pages
 * between them.
 */
static bool is_fragmented(const struct ram *r)
{
	return r->snapshot.n > IMAGE_MEMORY_EXTENTS_MAX / 2;
}

static bool is_worth_merging(const struct ram *r)
{
	uint64_t visible[CTL_MEMORY_MAX], shown = 0, held = 0;

	if (r->nlayers < 2)
		return false;
	count_visible(r, visible);
	for (unsigned i = 0; i < r->nlayers; i++) {
		shown += visible[i];
		held += r->layers[i].bytes;
	}
	return r->nlayers >= CHAIN_LONG || held > 2 * shown + WASTE_MIN;
}

static int begin_worthwhile(struct ram *r)
{
	if (is_fragmented(r))
		return begin(r, 0, IMAGE_MEMORY_EXTENTS_MAX / 4, NULL);
	return begin(r, first_to_merge(r), IMAGE_MEMORY_EXTENTS_MAX / 2, NULL);
}

bool ram_flatten_step(struct ram *r)
{
	struct flatten *f = &r->flat;
	int result;

	if (f->done || f->failed || (!f->active && !is_fragmented(r) && !is_worth_merging(r)))
		return false;
	result = f->active ? copy_slice(r, NULL) : begin_worthwhile(r);
	if (result) {
		flatten_stop(r);
		f->failed = true;
	}
	return !result && !f->done;
}

/* --- Merging during a freeze, when it can't wait --- */

/* Ends the merge whose beginning had this result. */
static int finish_now(struct ram *r, int result, struct err *e)
{
	while (!result && !r->flat.done)
		result = copy_slice(r, e);
	if (!result)
		flatten_adopt(r);
	if (!result && r->flat.active)
		result = err_set(e, ENOMEM, "list what the memory layers hold");
	if (result)
		flatten_stop(r);
	return result;
}

int flatten_chain(struct ram *r, unsigned places, struct err *e)
{
	int result = 0;

	if (r->nlayers + places <= CTL_MEMORY_MAX)
		return 0;
	if (!r->flat.active)
		result = begin(r, first_to_merge(r), IMAGE_MEMORY_EXTENTS_MAX / 2, e);
	return finish_now(r, result, e);
}

int flatten_extent_map(struct ram *r, struct err *e)
{
	flatten_stop(r);
	return finish_now(r, begin(r, 0, IMAGE_MEMORY_EXTENTS_MAX / 2, e), e);
}
