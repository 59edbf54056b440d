// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"

#define GM_ALIGN (1ull << 30) /* allows huge pages with every kind of backing */

uint64_t gm_offset(const struct gm *m, uint64_t addr)
{
	uint64_t offset = addr;

	if (addr >= GM_HOLE_START) {
		if (addr < GM_HIGH_START)
			return UINT64_MAX;
		offset = addr - GM_HIGH_START + GM_HOLE_START;
	}
	return offset < m->bytes ? offset : UINT64_MAX;
}

uint64_t gm_addr(uint64_t offset)
{
	return offset < GM_HOLE_START ? offset : offset - GM_HOLE_START + GM_HIGH_START;
}

/*
 * Returns how many bytes of RAM follow RAM offset `offset` without a hole in guest physical
 * addresses.
 */
static uint64_t bytes_to_edge(const struct gm *m, uint64_t offset)
{
	if (offset < GM_HOLE_START && m->bytes > GM_HOLE_START)
		return GM_HOLE_START - offset;
	return m->bytes - offset;
}

void *gm_ptr(const struct gm *m, uint64_t addr, uint64_t len)
{
	uint64_t offset = gm_offset(m, addr);

	if (offset == UINT64_MAX || len > bytes_to_edge(m, offset))
		return NULL;
	return m->base + offset;
}

bool gm_read(const struct gm *m, uint64_t addr, void *out, uint64_t len)
{
	const void *p = gm_ptr(m, addr, len);

	if (!p)
		return false;
	memcpy(out, p, len);
	return true;
}

bool gm_write(const struct gm *m, uint64_t addr, const void *data, uint64_t len)
{
	void *p = gm_ptr(m, addr, len);

	if (!p)
		return false;
	memcpy(p, data, len);
	return true;
}

int gm_reserve(struct gm *out, uint64_t bytes, struct err *e)
{
	uint64_t span = bytes + GM_ALIGN;
	uint8_t *p, *base;

	if (!bytes || bytes % (2u << 20) || span < bytes)
		return err_say(e, EINVAL,
			       "guest memory has %llu bytes; it must be a multiple of 2 MiB",
			       (unsigned long long)bytes);
	p = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return err_set(e, errno, "reserve %llu MiB of address space",
			       (unsigned long long)(span >> 20));
	base = (uint8_t *)(((uintptr_t)p + GM_ALIGN - 1) & ~(GM_ALIGN - 1));
	if (base > p)
		munmap(p, base - p);
	munmap(base + bytes, p + span - (base + bytes));
	*out = (struct gm){.base = base, .bytes = bytes, .reserved = bytes};
	return 0;
}

int gm_resize(struct gm *m, uint64_t bytes, struct err *e)
{
	if (!bytes || bytes % (2u << 20) || bytes > m->reserved)
		return err_say(e, EINVAL,
			       "guest memory has %llu MiB; it must be an even number, at most %llu",
			       (unsigned long long)(bytes >> 20),
			       (unsigned long long)(m->reserved >> 20));
	m->bytes = bytes;
	return 0;
}

int gm_map(const struct gm *m, uint64_t start, uint64_t end, int how, int fd, uint64_t at,
	   struct err *e)
{
	if (mmap(m->base + start, end - start, PROT_READ | PROT_WRITE,
		 how | MAP_FIXED | MAP_NORESERVE, fd, (off_t)at) == MAP_FAILED)
		return err_set(e, errno, "map a file of the guest's memory");
	return 0;
}

int gm_back_with_memfd(struct gm *m, int *fd, struct err *e)
{
	scoped_fd int mem = memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (mem < 0)
		return err_set(e, errno, "make a memory file for the guest");
	if (ftruncate(mem, (off_t)m->bytes) < 0)
		return err_set(e, errno, "set the size of the guest's memory file");
	int r = gm_map(m, 0, m->bytes, MAP_SHARED, mem, 0, e);
	if (r)
		return r;
	/* Best effort: the guest also runs without huge pages. */
	madvise(m->base, m->bytes, MADV_HUGEPAGE);
	*fd = take_fd(&mem);
	return 0;
}

int gm_back_with_file(struct gm *m, int fd, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "get the size of the memory file");
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size != m->bytes)
		return err_say(e, EINVAL,
			       "the memory file has %lld bytes, but this VM has %llu bytes of RAM",
			       (long long)st.st_size, (unsigned long long)m->bytes);
	return gm_map(m, 0, m->bytes, MAP_PRIVATE, fd, 0, e);
}

void gm_release(struct gm *m)
{
	if (m->base)
		munmap(m->base, m->reserved);
	*m = (struct gm){0};
}
