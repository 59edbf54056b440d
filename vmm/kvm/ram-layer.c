// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/fd.h"
#include "base/file.h"
#include "vmm/kvm/ram-table.h"

#define BOUNCE	   (64u << 10)
#define GATHER_MAX 1024 /* iovecs that the kernel accepts in one call */

int layer_create(struct err *e)
{
	int fd = memfd_create("layer", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 ? err_set(e, errno, "make a memory layer") : fd;
}

/* Writes zeros: a running VM may not extend files with fallocate(2) (vmm/confine.c). */
int layer_allocate(int fd, uint64_t bytes, struct err *e)
{
	static const uint8_t zeros[BOUNCE];
	int result = 0;

	for (uint64_t at = 0, n; at < bytes && !result; at += n) {
		n = bytes - at < BOUNCE ? bytes - at : BOUNCE;
		result = file_write(fd, at, zeros, n, e);
	}
	return result;
}

int layer_finish(const struct ram *r, int fd, const struct extents *extents, struct err *e)
{
	int result = ram_table_write(fd, extents, r->gm->bytes, e);

	if (result)
		return err_context(e, "a memory layer");
	/* The layer may end in holes. */
	if (ftruncate(fd, (off_t)(ram_table_bytes(extents->n) + extents_bytes(extents))) < 0)
		return err_set(e, errno, "set the size of a memory layer");
	/* No writable mapping exists, so F_SEAL_FUTURE_WRITE suffices. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return err_set(e, errno, "seal a memory layer");
	return 0;
}

/* --- Copying from the files of a snapshot --- */

/* Writes the pages of `data` that are not all zeros to `offset`, in as few calls as possible. */
static int write_nonzero(int to, uint64_t offset, const uint8_t *data, uint64_t n, struct err *e)
{
	int r = 0;

	for (uint64_t at = 0, start; at < n && !r;) {
		while (at < n && is_zero(data + at, RAM_PAGE))
			at += RAM_PAGE;
		start = at;
		while (at < n && !is_zero(data + at, RAM_PAGE))
			at += RAM_PAGE;
		r = file_write(to, offset + start, data + start, at - start, e);
	}
	return r;
}

/*
 * Copies with read(2), which allocates nothing for a hole in a memfd, unlike a read through a
 * mapping. Looking for holes costs more than reading them: SEEK_HOLE visits every page up to the
 * next hole.
 */
static int copy_file(int from, uint64_t from_at, int to, uint64_t to_at, uint64_t bytes,
		     struct err *e)
{
	uint8_t bounce[BOUNCE];
	int r = 0;

	for (uint64_t done = 0; done < bytes && !r;) {
		uint64_t n = bytes - done < sizeof(bounce) ? bytes - done : sizeof(bounce);

		r = file_read(from, from_at + done, bounce, n, e);
		if (!r)
			r = write_nonzero(to, to_at + done, bounce, n, e);
		done += n;
	}
	return r;
}

int layer_copy_snapshot(const struct ram *r, const struct extent_map *source, int fd, uint64_t at,
			uint64_t start, uint64_t end, struct err *e)
{
	while (start < end) {
		uint64_t stop = end, from_at;
		int from = ram_file(r, extent_map_at(source, start, &stop, &from_at));
		int result = copy_file(from, from_at, fd, at, stop - start, e);

		if (result)
			return err_context(e, "copy a memory layer");
		at += stop - start;
		start = stop;
	}
	return 0;
}

/* --- Copying from RAM --- */

/* Collects consecutive writes to a layer, so that the paused guest waits for fewer system calls. */
struct gather {
	const struct ram *r;
	int fd;
	unsigned n;
	uint64_t at; /* where the first iovec goes in the layer's file */
	size_t used; /* bytes used in the bounce buffer */
	struct iovec iov[GATHER_MAX];
	uint8_t bounce[BOUNCE];
};

static int flush(struct gather *g, struct err *e)
{
	struct iovec *v = g->iov;

	while (g->n) {
		ssize_t done = pwritev(g->fd, v, (int)g->n, (off_t)g->at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return err_set(e, done < 0 ? errno : EIO,
				       "copy the pages that the guest wrote");
		g->at += (uint64_t)done;
		for (; g->n && (size_t)done >= v->iov_len; v++, g->n--)
			done -= (ssize_t)v->iov_len;
		if (g->n) {
			v->iov_base = (uint8_t *)v->iov_base + done;
			v->iov_len -= (size_t)done;
		}
	}
	return 0;
}

static int add(struct gather *g, uint8_t *data, size_t len, struct err *e)
{
	int result = g->n == GATHER_MAX ? flush(g, e) : 0;

	if (!result)
		g->iov[g->n++] = (struct iovec){.iov_base = data, .iov_len = len};
	return result;
}

/* Adds the pages at `data`. Pages of zeros become holes. */
static int add_nonzero(struct gather *g, uint8_t *data, size_t len, struct err *e)
{
	int result = 0;

	for (size_t at = 0; at < len && !result; at += RAM_PAGE) {
		if (!is_zero(data + at, RAM_PAGE)) {
			result = add(g, data + at, RAM_PAGE, e);
			continue;
		}
		result = flush(g, e);
		g->at += RAM_PAGE;
	}
	return result;
}

/*
 * Adds [start, end) as the snapshot has it. Reads the file, not RAM, unless the file is on disk: a
 * read through the mapping could allocate a page for a hole of a memfd, for good.
 */
static int add_snapshot(struct gather *g, uint64_t start, uint64_t end, struct err *e)
{
	int result = 0;

	while (start < end && !result) {
		uint64_t stop = end, at;
		uint8_t *data;
		int from = ram_file(g->r, extent_map_at(&g->r->snapshot, start, &stop, &at));

		if (from == g->r->memory_fd && g->r->on_disk) {
			result = add_nonzero(g, g->r->gm->base + start, stop - start, e);
			start = stop;
			continue;
		}
		if (g->used == BOUNCE)
			result = flush(g, e);
		if (result)
			break;
		if (!g->n) /* nothing pending is in the bounce buffer */
			g->used = 0;
		data = g->bounce + g->used;
		if (stop - start > BOUNCE - g->used)
			stop = start + (BOUNCE - g->used);
		g->used += stop - start;
		result = file_read(from, at, data, stop - start, e);
		if (!result)
			result = add_nonzero(g, data, stop - start, e);
		start = stop;
	}
	return result;
}

/*
 * Adds one extent. *next is the first extent of `dirty` inside it, and on return the first one
 * after it.
 */
static int add_extent(struct gather *g, const struct extent *extent, const struct extents *dirty,
		      uint32_t *next, struct err *e)
{
	uint64_t at = extent->offset, end = at + extent->bytes;
	int result = 0;

	for (; *next < dirty->n && dirty->extent[*next].offset < end && !result; ++*next) {
		const struct extent *d = &dirty->extent[*next];

		result = add_snapshot(g, at, d->offset, e);
		at = d->offset + d->bytes;
		if (!result)
			result = add(g, g->r->gm->base + d->offset, d->bytes, e);
	}
	return result;
}

int layer_copy_ram(const struct ram *r, int fd, const struct extents *extents,
		   const struct extents *dirty, struct err *e)
{
	scoped_free struct gather *g = malloc(sizeof(*g));
	uint32_t next = 0;
	int result = 0;

	if (!g)
		return err_set(e, ENOMEM, "copy the pages that the guest wrote");
	g->r = r;
	g->fd = fd;
	g->n = 0;
	g->used = 0;
	g->at = ram_table_bytes(extents->n);
	for (uint32_t i = 0; i < extents->n && !result; i++)
		result = add_extent(g, &extents->extent[i], dirty, &next, e);
	return result ? result : flush(g, e);
}
