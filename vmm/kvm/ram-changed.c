// SPDX-License-Identifier: Apache-2.0
/*
 * Which of the pages that are this process's own the image does not have. Most that a freeze left
 * as they were are still as they were then, and to look at a page costs a small part of copying it.
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

void layer_go(struct ram *r, struct ram_layer *l)
{
	if (r->ngone == CTL_MEMORY_MAX)
		layer_close(l);
	else
		r->gone[r->ngone++] = *l;
}

/*
 * The file of a layer, to be compared with; NULL: its pages count as different. Only of layers that
 * this process wrote: those of others hold nothing that was left here. No hole of it is looked at
 * but for pages of zeros.
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

/* Adds those pages of [start, end) that are not as in `image`; NULL: all. */
static int add_different(struct ram *r, struct runs *out, uint64_t start, uint64_t end,
			 const uint8_t *image)
{
	int result = 0;

	if (!image)
		return runs_add(out, start, end - start);
	for (uint64_t at = start; at < end && !result; at += RAM_PAGE, image += RAM_PAGE)
		if (memcmp(r->gm->base + at, image, RAM_PAGE) != 0)
			result = runs_add(out, at, RAM_PAGE);
	return result;
}

static int add_changed(struct ram *r, struct runs *out, const struct run *run)
{
	uint64_t at = run->offset, end = at + run->bytes;
	int result = 0;

	for (uint32_t i = overlay_find(&r->image, at); at < end && !result; i++) {
		const struct piece *p = i < r->image.n ? &r->image.piece[i] : NULL;
		uint64_t start = p && p->offset < end ? p->offset : end;
		uint64_t stop = start < end ? p->offset + p->bytes : end;
		const uint8_t *image = NULL;

		if (at < start)
			result = add_different(r, out, at, start, NULL);
		if (stop > end)
			stop = end;
		if (start < at)
			start = at;
		if (start < stop)
			image = view_of(r, p->file);
		if (image)
			image += p->at + (start - p->offset);
		if (start < stop && !result)
			result = add_different(r, out, start, stop, image);
		at = stop;
	}
	return result;
}

int ram_changed(struct ram *r, const struct runs *own, struct runs *out, struct err *e)
{
	int result = 0;

	for (uint32_t i = 0; i < own->n && !result; i++)
		result = add_changed(r, out, &own->run[i]);
	return result ? err_set(e, result, "list the pages that the guest wrote") : 0;
}
