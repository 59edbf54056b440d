// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/file.h"
#include "vmm/kvm/ram-table.h"

#define BOUNCE (64u << 10)

int layer_create(const struct ram *r, struct err *e)
{
	scoped_fd int fd = memfd_create("layer", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return err_set(e, errno, "make a memory layer");
	if (ftruncate(fd, (off_t)r->gm->bytes) < 0)
		return err_set(e, errno, "size a memory layer");
	return take_fd(&fd);
}

int layer_finish(const struct ram *r, int fd, const struct runs *runs, struct err *e)
{
	int result = ram_table_write(fd, runs, r->gm->bytes, e);

	if (result)
		return err_context(e, "a memory layer");
	/* Nobody has mapped it: what FUTURE_WRITE leaves is nothing. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return err_set(e, errno, "seal a memory layer");
	return 0;
}

/* --- From the files of an image --- */

static bool page_is_zero(const uint8_t *p)
{
	return p[0] == 0 && !memcmp(p, p + 1, RAM_PAGE - 1);
}

/* Writes what is not zero of `n` bytes for `offset`, in as few pieces as it can be. */
static int write_nonzero(int to, uint64_t offset, const uint8_t *data, uint64_t n, struct err *e)
{
	int r = 0;

	for (uint64_t at = 0, start; at < n && !r;) {
		while (at < n && page_is_zero(data + at))
			at += RAM_PAGE;
		start = at;
		while (at < n && !page_is_zero(data + at))
			at += RAM_PAGE;
		r = file_write(to, offset + start, data + start, at - start, e);
	}
	return r;
}

/*
 * read(2) of a hole in a memfd fills it with nothing, as a look through a map would. Asking where
 * the holes are costs more than reading: SEEK_HOLE looks at every page up to the next one.
 */
static int copy_file(int from, int to, uint64_t start, uint64_t end, struct err *e)
{
	uint8_t bounce[BOUNCE];
	int r = 0;

	for (uint64_t at = start; at < end && !r;) {
		uint64_t n = end - at < sizeof(bounce) ? end - at : sizeof(bounce);

		r = file_read(from, at, bounce, n, e);
		if (!r)
			r = write_nonzero(to, at, bounce, n, e);
		at += n;
	}
	return r;
}

/* The file that [start, *end) is in; *end is brought down to where that ends. */
static int file_at(const struct ram *r, const struct overlay *source, uint64_t start, uint64_t *end)
{
	uint32_t i = overlay_find(source, start);
	const struct piece *p = i < source->n ? &source->piece[i] : NULL;
	uint64_t edge;

	if (!p || p->offset >= *end)
		return r->memory_fd;
	edge = p->offset > start ? p->offset : p->offset + p->bytes;
	if (edge < *end)
		*end = edge;
	return ram_file(r, p->offset > start ? RAM_MEMORY_FILE : p->file);
}

int layer_copy_image(const struct ram *r, const struct overlay *source, int fd, uint64_t start,
		     uint64_t end, struct err *e)
{
	while (start < end) {
		uint64_t stop = end;
		int from = file_at(r, source, start, &stop);
		int result = copy_file(from, fd, start, stop, e);

		if (result)
			return err_context(e, "copy a memory layer");
		start = stop;
	}
	return 0;
}

/* --- From RAM --- */

static int copy_pages(const struct ram *r, int fd, uint64_t start, uint64_t end, struct err *e)
{
	int result = file_write(fd, start, r->gm->base + start, end - start, e);

	return result ? err_context(e, "copy the pages that the guest wrote") : 0;
}

/* One run; *next is the first of `dirty` in it, and then the first behind it. What is between two
 * is read from the files, since a look through RAM could fill a hole of the image for good. */
static int copy_run(const struct ram *r, int fd, const struct run *run, const struct runs *dirty,
		    uint32_t *next, struct err *e)
{
	uint64_t at = run->offset, end = at + run->bytes;
	int result = 0;

	for (; *next < dirty->n && dirty->run[*next].offset < end && !result; ++*next) {
		const struct run *d = &dirty->run[*next];

		result = layer_copy_image(r, &r->image, fd, at, d->offset, e);
		at = d->offset + d->bytes;
		if (!result)
			result = copy_pages(r, fd, d->offset, at, e);
	}
	return result;
}

int layer_copy_ram(const struct ram *r, int fd, const struct runs *runs, const struct runs *dirty,
		   struct err *e)
{
	uint32_t next = 0;
	int result = 0;

	for (uint32_t i = 0; i < runs->n && !result; i++)
		result = copy_run(r, fd, &runs->run[i], dirty, &next, e);
	return result;
}
