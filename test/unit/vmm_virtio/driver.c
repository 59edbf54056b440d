// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* Ends the program when a step of the setup fails. */
static void must(int rc)
{
	if (rc < 0)
		abort();
}

void drv_init(struct drv *v, uint64_t bytes)
{
	memset(v, 0, sizeof(*v));
	v->mem.base = aligned_alloc(4096, bytes);
	v->mem.bytes = bytes;
	if (!v->mem.base)
		abort();
	memset(v->mem.base, 0, bytes);
	v->next_free = 4096;
	must(event_loop_new(&v->loop, NULL));
	must(irq_line_init(&v->line, 5, NULL));
}

void drv_attach(struct drv *v, struct vio_dev *dev)
{
	must(vio_mmio_new(&v->mmio, dev, DRV_ADDR, &v->line, &v->bus, v->loop, NULL));
	v->dev = dev;
}

void drv_fini(struct drv *v)
{
	vio_mmio_free(v->mmio);
	event_loop_free(v->loop);
	close_fd(&v->line.fd);
	free(v->mem.base);
}

uint32_t drv_read(struct drv *v, uint32_t reg)
{
	uint32_t value;

	bus_read(&v->bus, BUS_MMIO, DRV_ADDR + reg, (uint8_t *)&value, 4);
	return value;
}

void drv_write(struct drv *v, uint32_t reg, uint32_t value)
{
	bus_write(&v->bus, BUS_MMIO, DRV_ADDR + reg, (uint8_t *)&value, 4);
}

void *drv_ptr(struct drv *v, uint64_t addr)
{
	return v->mem.base + addr;
}

uint64_t drv_alloc(struct drv *v, uint64_t len, uint64_t align)
{
	uint64_t at = (v->next_free + align - 1) / align * align;

	if (at + len > v->mem.bytes)
		abort();
	v->next_free = at + len;
	return at;
}

static void write_addr(struct drv *v, uint32_t reg, uint64_t addr)
{
	drv_write(v, reg, (uint32_t)addr);
	drv_write(v, reg + 4, (uint32_t)(addr >> 32));
}

void drv_setup_queue(struct drv *v, unsigned q, uint16_t size)
{
	struct drv_queue *dq = &v->q[q];

	drv_write(v, DRV_QUEUE_SEL, q);
	uint32_t most = drv_read(v, DRV_QUEUE_MAX);
	if (size > most)
		size = (uint16_t)most;
	if (!dq->desc) {
		dq->desc = drv_alloc(v, 16ull * size, 16);
		dq->avail = drv_alloc(v, 6 + 2ull * size, 2);
		dq->used = drv_alloc(v, 6 + 8ull * size, 4);
	}
	dq->size = size;
	dq->next_desc = dq->last_used = 0;
	memset(drv_ptr(v, dq->avail), 0, 6 + 2u * size);
	memset(drv_ptr(v, dq->used), 0, 6 + 8u * size);
	drv_write(v, DRV_QUEUE_NUM, size);
	write_addr(v, DRV_QUEUE_DESC, dq->desc);
	write_addr(v, DRV_QUEUE_AVAIL, dq->avail);
	write_addr(v, DRV_QUEUE_USED, dq->used);
	drv_write(v, DRV_QUEUE_READY, 1);
}

void drv_negotiate(struct drv *v, uint64_t features)
{
	uint64_t offered;

	drv_write(v, DRV_STATUS, 0);
	drv_write(v, DRV_STATUS, 1);
	drv_write(v, DRV_STATUS, 3);
	drv_write(v, DRV_FEATURES_SEL, 1);
	offered = (uint64_t)drv_read(v, DRV_FEATURES) << 32;
	drv_write(v, DRV_FEATURES_SEL, 0);
	offered |= drv_read(v, DRV_FEATURES);
	v->features = (features | DRV_F_VERSION_1) & offered;
	drv_write(v, DRV_DRIVER_FEATURES_SEL, 0);
	drv_write(v, DRV_DRIVER_FEATURES, (uint32_t)v->features);
	drv_write(v, DRV_DRIVER_FEATURES_SEL, 1);
	drv_write(v, DRV_DRIVER_FEATURES, (uint32_t)(v->features >> 32));
	drv_write(v, DRV_STATUS, 11);
}

void drv_start(struct drv *v, uint64_t features, uint16_t queue_size)
{
	drv_negotiate(v, features);
	for (unsigned q = 0; q < v->dev->ops->queues; q++)
		drv_setup_queue(v, q, queue_size);
	drv_write(v, DRV_STATUS, 15);
	drv_run(v);
}

void drv_set_desc(struct drv *v, unsigned q, uint16_t i, struct drv_desc d)
{
	memcpy(drv_ptr(v, v->q[q].desc + 16ull * i), &d, sizeof(d));
}

static uint16_t *avail_idx(struct drv *v, unsigned q)
{
	return drv_ptr(v, v->q[q].avail + 2);
}

void drv_offer(struct drv *v, unsigned q, uint16_t head)
{
	uint16_t *idx = avail_idx(v, q);
	uint16_t *slot = drv_ptr(v, v->q[q].avail + 4 + 2ull * (*idx % v->q[q].size));

	*slot = head;
	__atomic_store_n(idx, (uint16_t)(*idx + 1), __ATOMIC_RELEASE);
}

uint16_t drv_add(struct drv *v, unsigned q, const struct drv_buf *bufs, unsigned n)
{
	struct drv_queue *dq = &v->q[q];
	uint16_t head = dq->next_desc;

	for (unsigned i = 0; i < n; i++) {
		uint16_t at = dq->next_desc, next = (uint16_t)((at + 1) % dq->size);

		drv_set_desc(v, q, at,
			     (struct drv_desc){bufs[i].addr, bufs[i].len,
					       (uint16_t)((bufs[i].in ? DRV_WRITE : 0) |
							  (i + 1 < n ? DRV_NEXT : 0)),
					       next});
		dq->next_desc = next;
	}
	drv_offer(v, q, head);
	return head;
}

void drv_kick(struct drv *v, unsigned q)
{
	drv_write(v, DRV_NOTIFY, q);
}

void drv_run(struct drv *v)
{
	/* Aborts when a device keeps the loop busy forever, instead of hanging. */
	for (int turns = 0; event_loop_turn(v->loop, 0); turns++)
		if (turns > 100000)
			abort();
}

bool drv_used(struct drv *v, unsigned q, uint16_t *head, uint32_t *len)
{
	struct drv_queue *dq = &v->q[q];
	uint16_t *idx = drv_ptr(v, dq->used + 2);
	uint32_t *slot = drv_ptr(v, dq->used + 4 + 8ull * (dq->last_used % dq->size));

	if (__atomic_load_n(idx, __ATOMIC_ACQUIRE) == dq->last_used)
		return false;
	*head = (uint16_t)slot[0];
	*len = slot[1];
	dq->last_used++;
	/* used_event: requests an interrupt for the next one. */
	uint16_t *used_event = drv_ptr(v, dq->avail + 4 + 2ull * dq->size);
	__atomic_store_n(used_event, dq->last_used, __ATOMIC_RELAXED);
	return true;
}

uint64_t drv_interrupts(struct drv *v)
{
	uint64_t count;

	return read(v->line.fd, &count, sizeof(count)) == sizeof(count) ? count : 0;
}
