// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/generation.h"

#include <string.h>

#include "base/random.h"

#define EVERYBODY (PLATFORM_GENERATION_KERNEL | PLATFORM_GENERATION_AGENT)

static void registers_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	const struct generation *g = dev;

	memset(data, 0xff, len);
	for (uint32_t i = 0; i < len && offset + i < sizeof(g->registers); i++)
		data[i] = g->registers[offset + i];
}

static void registers_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct generation *g = dev;
	unsigned who = data[0];

	if (offset || (who != PLATFORM_GENERATION_KERNEL && who != PLATFORM_GENERATION_AGENT))
		return;
	__atomic_fetch_or(&g->promised, who, __ATOMIC_RELAXED);
	g->on_unique(g->arg, who);
}

static const struct bus_ops registers_ops = {registers_read, registers_write};

static void renew(struct generation *g)
{
	random_bytes(g->registers + PLATFORM_GENERATION_ID, PLATFORM_GENERATION_BYTES);
}

int generation_add(struct generation *g, struct bus *bus, generation_fn *on_unique, void *arg,
		   struct err *e)
{
	struct wire magic;

	*g = (struct generation){.on_unique = on_unique, .arg = arg};
	magic = wire_on(g->registers, PLATFORM_GENERATION_ID);
	wire_put_u32(&magic, PLATFORM_GENERATION_MAGIC);
	renew(g);
	return bus_add(bus, BUS_PORT, PLATFORM_GENERATION_PORT, PLATFORM_GENERATION_LEN,
		       &registers_ops, g, e);
}

unsigned generation_promised(const struct generation *g)
{
	return __atomic_load_n(&g->promised, __ATOMIC_RELAXED);
}

void generation_save(const struct generation *g, struct wire *w)
{
	wire_put_u8(w, (uint8_t)generation_promised(g));
}

void generation_restore(struct generation *g, struct wire *r)
{
	unsigned promised = wire_get_u8(r);

	r->bad |= (promised & ~EVERYBODY) != 0;
	__atomic_store_n(&g->promised, promised & EVERYBODY, __ATOMIC_RELAXED);
	renew(g);
}
