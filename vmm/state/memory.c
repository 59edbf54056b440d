// SPDX-License-Identifier: Apache-2.0
#include "vmm/state/state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define PAGE 4096u

static bool page_is_zero(const uint8_t *p)
{
	return p[0] == 0 && !memcmp(p, p + 1, PAGE - 1);
}

/* Writes the nonzero pages of [at, end), in as few calls as possible. */
static int write_range(int fd, const struct gm *m, uint64_t at, uint64_t end, struct err *e)
{
	while (at < end) {
		uint64_t start;
		int r;

		while (at < end && page_is_zero(m->base + at))
			at += PAGE;
		start = at;
		while (at < end && !page_is_zero(m->base + at))
			at += PAGE;
		r = file_write(fd, start, m->base + start, at - start, e);
		if (r)
			return err_context(e, "the memory file at %llu MiB",
					   (unsigned long long)(start >> 20));
	}
	return 0;
}

/* Finds the next extent [*start, *end) from `at` on that is not a hole of the backing file. */
static int next_data(int backing, uint64_t bytes, uint64_t at, uint64_t *start, uint64_t *end,
		     struct err *e)
{
	off_t data, hole;

	*start = at;
	*end = bytes;
	if (backing < 0)
		return 0;
	data = lseek(backing, (off_t)at, SEEK_DATA);
	if (data < 0 && errno == ENXIO) { /* only a hole follows */
		*start = bytes;
		return 0;
	}
	hole = data < 0 ? -1 : lseek(backing, data, SEEK_HOLE);
	if (hole < 0)
		return err_set(e, errno, "find data in the guest's memory file");
	*start = (uint64_t)data & ~(uint64_t)(PAGE - 1);
	*end = ((uint64_t)hole + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	if (*end > bytes)
		*end = bytes;
	return 0;
}

int memory_save(const struct gm *m, int backing, int fd, struct err *e)
{
	uint64_t at = 0, start;
	int r;

	if (ftruncate(fd, (off_t)m->bytes) < 0)
		return err_set(e, errno, "size the memory file");
	while (at < m->bytes) {
		r = next_data(backing, m->bytes, at, &start, &at, e);
		if (!r)
			r = write_range(fd, m, start, at, e);
		if (r)
			return r;
	}
	return 0;
}
