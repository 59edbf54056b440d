// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the own pages of this process that differ from the snapshot. Most pages that a freeze left
 * as own pages have not changed since, and comparing a page costs only a fraction of copying it.
 */
#include "vmm/kvm/ram-internal.h"

#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"

void layer_close(struct ram_layer *l)
{
	if (l->view)
		munmap(l->view, l->size);
	l->view = NULL;
	close_fd(&l->fd);
}

void layer_retire(struct ram *r, struct ram_layer *l)
{
	if (r->nretired == CTL_MEMORY_MAX)
		layer_close(l);
	else
		r->retired[r->nretired++] = *l;
}

/*
 * Returns a mapping of a layer's file to compare with, or NULL: its pages then count as different.
 * Maps only layers that this process wrote, since no others hold copies of own pages. Reading a
 * hole through the mapping allocates a page, but this happens only where a page of zeros is
 * compared.
 */
static const uint8_t *view_of(struct ram *r, uint32_t file)
{
	struct ram_layer *l = &r->layers[ram_position(r, file)];
	void *p;

	if (!l->own || l->view)
		return l->view;
	p = mmap(NULL, l->size, PROT_READ, MAP_SHARED, l->fd, 0);
	if (p != MAP_FAILED)
		l->view = p;
	return l->view;
}

/* Adds the pages of [start, end) that differ from `snapshot`; all of them when it is NULL. */
static int add_different(struct ram *r, struct extents *out, uint64_t start, uint64_t end,
			 const uint8_t *snapshot)
{
	int result = 0;

	if (!snapshot)
		return extents_add(out, start, end - start);
	for (uint64_t at = start; at < end && !result; at += RAM_PAGE, snapshot += RAM_PAGE)
		if (memcmp(r->gm->base + at, snapshot, RAM_PAGE) != 0)
			result = extents_add(out, at, RAM_PAGE);
	return result;
}

static int add_changed(struct ram *r, struct extents *out, const struct extent *extent)
{
	uint64_t at = extent->offset, end = at + extent->bytes;
	int result = 0;

	while (at < end && !result) {
		uint64_t stop = end, from;
		uint32_t file = extent_map_at(&r->snapshot, at, &stop, &from);
		const uint8_t *view = file == RAM_MEMORY_FILE ? NULL : view_of(r, file);

		result = add_different(r, out, at, stop, view ? view + from : NULL);
		at = stop;
	}
	return result;
}

int ram_changed(struct ram *r, const struct extents *own, struct extents *out, struct err *e)
{
	int result = 0;

	for (uint32_t i = 0; i < own->n && !result; i++)
		result = add_changed(r, out, &own->extent[i]);
	return result ? err_set(e, result, "list the pages that the guest wrote") : 0;
}
