// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

/*
 * Drops pages of RAM. A page dropped from a private mapping is no longer an own page, hence not
 * dirty. RAM then has the content that is mapped there, and the next snapshot that of its topmost
 * layer. These differ if that layer was not mapped (ram_map_long_extents), but the guest uses
 * neither.
 */
static int drop(const struct ram *r, uint64_t start, uint64_t end)
{
	int result;

	if (r->shared)
		result = fallocate(r->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   (off_t)start, (off_t)(end - start));
	else
		result = madvise(r->gm->base + start, end - start, MADV_DONTNEED);
	return result < 0 ? -errno : 0;
}

int ram_discard(struct ram *r, uint64_t offset, uint64_t bytes)
{
	uint64_t start, end;

	if (r->memory_fd < 0 || offset > r->gm->bytes || bytes > r->gm->bytes - offset)
		return -EINVAL;
	start = (offset + RAM_PAGE - 1) / RAM_PAGE * RAM_PAGE;
	end = (offset + bytes) / RAM_PAGE * RAM_PAGE;
	return start < end ? drop(r, start, end) : 0;
}
