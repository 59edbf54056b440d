// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/bus.h"

#include <errno.h>
#include <string.h>

static const struct bus_range *find_overlap(const struct bus *b, enum bus_space space,
					    uint64_t addr, uint64_t len)
{
	for (unsigned i = 0; i < b->n; i++) {
		const struct bus_range *r = &b->range[i];

		if (r->space == space && addr < r->addr + r->len && r->addr < addr + len)
			return r;
	}
	return NULL;
}

int bus_add(struct bus *b, enum bus_space space, uint64_t addr, uint64_t len,
	    const struct bus_ops *ops, void *dev, struct err *e)
{
	if (!len || addr + len < addr)
		return err_say(e, EINVAL, "bus range %#llx + %#llx is empty or wraps",
			       (unsigned long long)addr, (unsigned long long)len);
	if (find_overlap(b, space, addr, len))
		return err_say(e, EEXIST, "bus range %#llx + %#llx overlaps another",
			       (unsigned long long)addr, (unsigned long long)len);
	if (b->n == BUS_RANGES_MAX)
		return err_say(e, ENOSPC, "the bus has room for %d ranges", BUS_RANGES_MAX);
	b->range[b->n++] = (struct bus_range){space, addr, len, ops, dev};
	return 0;
}

/*
 * Returns the range that contains the whole access, or NULL. An access across the edge of a range
 * has no handler.
 */
static const struct bus_range *find(const struct bus *b, enum bus_space space, uint64_t addr,
				    uint32_t len)
{
	if (!len || addr + len < addr)
		return NULL;
	const struct bus_range *r = find_overlap(b, space, addr, len);
	if (!r || addr < r->addr || addr - r->addr > r->len - len)
		return NULL;
	return r;
}

void bus_read(struct bus *b, enum bus_space space, uint64_t addr, uint8_t *data, uint32_t len)
{
	const struct bus_range *r = find(b, space, addr, len);

	memset(data, 0xff, len);
	if (r)
		r->ops->read(r->dev, addr - r->addr, data, len);
}

void bus_write(struct bus *b, enum bus_space space, uint64_t addr, const uint8_t *data,
	       uint32_t len)
{
	const struct bus_range *r = find(b, space, addr, len);

	if (r)
		r->ops->write(r->dev, addr - r->addr, data, len);
}
