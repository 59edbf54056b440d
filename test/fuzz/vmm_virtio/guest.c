// SPDX-License-Identifier: Apache-2.0
#include "guest.h"

#include <string.h>

#define QUEUE_SIZE 16

void guest_turn(struct guest *g)
{
	for (int i = 0; i < 16 && event_loop_turn(g->v.loop, 0); i++)
		;
}

static void start(struct guest *g)
{
	uint8_t flags = wire_get_u8(&g->in);

	g->v.next_free = 4096;
	memset(g->v.q, 0, sizeof(g->v.q));
	drv_negotiate(&g->v, flags & 1 ? UINT64_MAX : flags & 2 ? DRV_F_EVENT_IDX : 0);
	for (unsigned q = 0; q < g->v.dev->ops->queues; q++)
		drv_setup_queue(&g->v, q, QUEUE_SIZE);
	drv_write(&g->v, DRV_STATUS, 15);
	guest_turn(g);
}

static unsigned pick_queue(struct guest *g)
{
	return wire_get_u8(&g->in) % g->v.dev->ops->queues;
}

static void write_register(struct guest *g)
{
	uint32_t reg = wire_get_u16(&g->in) % VIO_MMIO_SIZE;

	drv_write(&g->v, reg, wire_get_u32(&g->in));
}

static void access_odd(struct guest *g)
{
	uint16_t reg = wire_get_u16(&g->in) % VIO_MMIO_SIZE;
	uint8_t len = (uint8_t)(1u << wire_get_u8(&g->in) % 4), data[8];

	bus_read(&g->v.bus, BUS_MMIO, DRV_ADDR + reg, data, len);
	wire_get_bytes(&g->in, data, len);
	bus_write(&g->v.bus, BUS_MMIO, DRV_ADDR + reg, data, len);
}

static void write_memory(struct guest *g)
{
	uint16_t at = wire_get_u16(&g->in);
	uint8_t len = wire_get_u8(&g->in);

	if (at + len <= GUEST_MEM)
		wire_get_bytes(&g->in, drv_ptr(&g->v, at), len);
}

/* Writes a descriptor whose length and address are mostly in range and sometimes far out of it. */
static void set_descriptor(struct guest *g)
{
	unsigned q = pick_queue(g);
	uint8_t i = wire_get_u8(&g->in) % QUEUE_SIZE, wild = wire_get_u8(&g->in);
	struct drv_desc d = {.addr = wire_get_u16(&g->in), .len = wire_get_u16(&g->in)};

	d.flags = wire_get_u8(&g->in) % 8;
	d.next = wire_get_u8(&g->in);
	if (wild == 1)
		d.addr = wire_get_u64(&g->in);
	if (wild == 2)
		d.len = wire_get_u32(&g->in);
	if (g->v.q[q].desc)
		drv_set_desc(&g->v, q, i, d);
}

static void offer(struct guest *g)
{
	unsigned q = pick_queue(g);
	uint8_t head = wire_get_u8(&g->in);

	if (g->v.q[q].desc)
		drv_offer(&g->v, q, head);
}

static void save(struct guest *g)
{
	static uint8_t buf[8192];
	struct wire w = wire_on(buf, sizeof(buf));

	for (int i = 0; i < 1000 && !vio_mmio_drain(g->v.mmio); i++)
		event_loop_turn(g->v.loop, 10);
	vio_mmio_save(g->v.mmio, &w);
	if (w.bad)
		__builtin_trap();
	vio_mmio_continue(g->v.mmio);
}

void guest_maybe_restore(struct guest *g)
{
	uint8_t len = wire_get_u8(&g->in), buf[256];
	struct wire r = wire_from(buf, len);

	wire_get_bytes(&g->in, buf, len);
	if (!len || vio_mmio_restore(g->v.mmio, &r, NULL) < 0)
		return;
	vio_mmio_resumed(g->v.mmio);
	guest_turn(g);
}

static void step(struct guest *g)
{
	uint8_t what = wire_get_u8(&g->in);

	switch (what % 12) {
	case 0:
		write_register(g);
		break;
	case 1:
		access_odd(g);
		break;
	case 2:
		write_memory(g);
		break;
	case 3:
		set_descriptor(g);
		break;
	case 4:
		offer(g);
		break;
	case 5:
		drv_kick(&g->v, pick_queue(g));
		guest_turn(g);
		break;
	case 6:
		start(g);
		break;
	case 7:
		save(g);
		break;
	default:
		if (g->special)
			g->special(g, what / 12);
	}
}

static void inspect(struct guest *g)
{
	static char text[4096];
	struct report r = report_on(text, sizeof(text));

	vio_mmio_inspect(g->v.mmio, &r);
}

void guest_play(struct guest *g)
{
	while (!g->in.bad && wire_left(&g->in))
		step(g);
	guest_turn(g);
	inspect(g);
}
