// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps the chain of layers short: the newest ones become one, as long as those below are not much
 * bigger, so that a page is copied a few times at most, however long the VM lives. An image that
 * was made before keeps the old ones.
 */
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "proto/image.h"
#include "vmm/kvm/ram-table.h"

#define CHAIN_LONG 8u		/* layers: from here on it is worth the work */
#define WASTE_MIN  (16u << 20)	/* bytes in layers that newer ones hide */
#define SLICE	   (128u << 10) /* bytes copied in a step */

/* As RAM_JOIN_GAP, but here nobody waits for what is copied: fewer pieces are worth more of it. */
#define FLATTEN_GAP (16u * RAM_PAGE)

/* --- One layer of some --- */

void flatten_stop(struct ram *r)
{
	struct flatten *f = &r->flat;

	close_fd(&f->fd);
	runs_free(&f->runs);
	overlay_free(&f->source);
	*f = (struct flatten){.fd = -1, .failed = f->failed};
}

static bool is_between(const struct ram *r, uint32_t file, unsigned first, unsigned end)
{
	int at = ram_position(r, file);

	return at >= (int)first && at < (int)end;
}

/* The pieces of the image that are of the layers [first, end). */
static int pieces_of(struct overlay *out, const struct ram *r, unsigned first, unsigned end)
{
	int result = 0;

	for (uint32_t i = 0; i < r->image.n && !result; i++)
		if (is_between(r, r->image.piece[i].file, first, end))
			result = overlay_add(out, &r->image.piece[i]);
	return result;
}

/* These are the newest: what is seen of them is all that the new layer has to hold. */
static int begin(struct ram *r, unsigned first, uint32_t most, struct err *e)
{
	struct flatten *f = &r->flat;
	struct overlay pieces = {0};
	struct runs runs = {0};
	uint32_t next = 0;
	int result;

	f->active = true;
	f->first = first;
	f->count = r->nlayers - first;
	result = pieces_of(&pieces, r, first, r->nlayers);
	if (!result)
		result = overlay_runs(&runs, &pieces);
	if (!result)
		result = runs_join(&f->runs, &runs, FLATTEN_GAP, most);
	if (!result)
		result = overlay_cut(&f->source, &r->image, &next, 0, UINT64_MAX);
	runs_free(&runs);
	overlay_free(&pieces);
	if (result)
		return err_set(e, ENOMEM, "list what the memory layers hold");
	f->to = ram_table_bytes(f->runs.n);
	f->fd = layer_create(e);
	return f->fd < 0 ? f->fd : 0;
}

static int copy_slice(struct ram *r, struct err *e)
{
	struct flatten *f = &r->flat;
	uint64_t left = SLICE;
	int result = 0;

	while (left && f->run < f->runs.n && !result) {
		const struct run *run = &f->runs.run[f->run];
		uint64_t n = run->bytes - f->at < left ? run->bytes - f->at : left;
		uint64_t start = run->offset + f->at;

		result = layer_copy_image(r, &f->source, f->fd, f->to, start, start + n, e);
		f->to += n;
		left -= n;
		f->at += n;
		if (f->at == run->bytes) {
			f->run++;
			f->at = 0;
		}
	}
	if (result || f->run < f->runs.n)
		return result;
	result = layer_finish(r, f->fd, &f->runs, e);
	f->done = !result;
	return result;
}

/* --- Into the image --- */

/* What the image is with the new layer in place of the old ones. */
static int merge_overlays(struct overlay *out, const struct ram *r, uint32_t file)
{
	const struct flatten *f = &r->flat;
	struct overlay older = {0}, newer = {0}, covered = {0};
	struct runs above = {0};
	int result = pieces_of(&older, r, 0, f->first);

	if (!result)
		result = pieces_of(&newer, r, f->first + f->count, r->nlayers);
	if (!result)
		result = overlay_runs(&above, &newer);
	if (!result)
		result =
			overlay_cover(&covered, &older, &f->runs, file, ram_table_bytes(f->runs.n));
	if (!result)
		result = overlay_replace(out, &covered, &above, &newer);
	overlay_free(&older);
	overlay_free(&newer);
	overlay_free(&covered);
	runs_free(&above);
	return result;
}

void flatten_adopt(struct ram *r)
{
	struct flatten *f = &r->flat;
	struct overlay image = {0};
	struct ram_layer *first = &r->layers[f->first];

	if (!f->done)
		return;
	if (merge_overlays(&image, r, r->last_file + 1)) {
		overlay_free(&image);
		return; /* the next freeze tries again */
	}
	for (unsigned i = 0; i < f->count; i++)
		layer_close(&first[i]);
	memmove(first + 1, first + f->count, (r->nlayers - f->first - f->count) * sizeof(*first));
	r->nlayers -= f->count - 1;
	*first = (struct ram_layer){.file = ++r->last_file,
				    .fd = take_fd(&f->fd),
				    .bytes = runs_bytes(&f->runs),
				    .size = ram_table_bytes(f->runs.n) + runs_bytes(&f->runs),
				    .own = true};
	overlay_take(&r->image, &image);
	flatten_stop(r);
}

/* --- What is worth it --- */

static void see(const struct ram *r, uint64_t seen[CTL_MEMORY_MAX])
{
	memset(seen, 0, CTL_MEMORY_MAX * sizeof(*seen));
	for (uint32_t i = 0; i < r->image.n; i++)
		seen[ram_position(r, r->image.piece[i].file)] += r->image.piece[i].bytes;
}

void flatten_drop_hidden(struct ram *r)
{
	uint64_t seen[CTL_MEMORY_MAX];
	unsigned kept = 0;

	if (r->flat.active) /* which counts on the chain as it is */
		return;
	see(r, seen);
	for (unsigned i = 0; i < r->nlayers; i++) {
		if (seen[i])
			r->layers[kept++] = r->layers[i];
		else
			layer_go(r, &r->layers[i]);
	}
	r->nlayers = kept;
}

/* The oldest layer that is at most twice as big as all that are newer: each page is copied again
 * only into a layer that is half as big again. Of a full chain at least the two newest. */
static unsigned first_worth(const struct ram *r)
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

/* A child maps each piece: before there are too many, pages between them are copied as well. */
static bool is_in_bits(const struct ram *r)
{
	return r->image.n > IMAGE_MEMORY_RUNS_MAX / 2;
}

static bool is_worth_it(const struct ram *r)
{
	uint64_t seen[CTL_MEMORY_MAX], shown = 0, held = 0;

	if (r->nlayers < 2)
		return false;
	see(r, seen);
	for (unsigned i = 0; i < r->nlayers; i++) {
		shown += seen[i];
		held += r->layers[i].bytes;
	}
	return r->nlayers >= CHAIN_LONG || held > 2 * shown + WASTE_MIN;
}

static int begin_what_is_worth_it(struct ram *r)
{
	if (is_in_bits(r))
		return begin(r, 0, IMAGE_MEMORY_RUNS_MAX / 4, NULL);
	return begin(r, first_worth(r), IMAGE_MEMORY_RUNS_MAX / 2, NULL);
}

bool ram_flatten_step(struct ram *r)
{
	struct flatten *f = &r->flat;
	int result;

	if (f->done || f->failed || (!f->active && !is_in_bits(r) && !is_worth_it(r)))
		return false;
	result = f->active ? copy_slice(r, NULL) : begin_what_is_worth_it(r);
	if (result) {
		flatten_stop(r);
		f->failed = true;
	}
	return !result && !f->done;
}

/* --- In a freeze, because it can't wait --- */

static int finish_now(struct ram *r, struct err *e)
{
	int result = 0;

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
		result = begin(r, first_worth(r), IMAGE_MEMORY_RUNS_MAX / 2, e);
	if (result) {
		flatten_stop(r);
		return result;
	}
	return finish_now(r, e);
}

int flatten_overlay(struct ram *r, struct err *e)
{
	int result;

	flatten_stop(r);
	result = begin(r, 0, IMAGE_MEMORY_RUNS_MAX / 2, e);
	if (result) {
		flatten_stop(r);
		return result;
	}
	return finish_now(r, e);
}
