// SPDX-License-Identifier: Apache-2.0
/* A fake guest driver: builds rings in a buffer, writes registers, reads what the device did. */
#ifndef RAMET_TEST_VIRTIO_DRIVER_H
#define RAMET_TEST_VIRTIO_DRIVER_H

#include "vmm/virtio/device.h"

#define DRV_ADDR 0xd0000000ull

#define DRV_F_INDIRECT	(1ull << 28)
#define DRV_F_EVENT_IDX (1ull << 29)
#define DRV_F_VERSION_1 (1ull << 32)

enum { /* registers, v1.2 4.2.2 */
       DRV_FEATURES = 0x10,
       DRV_FEATURES_SEL = 0x14,
       DRV_DRIVER_FEATURES = 0x20,
       DRV_DRIVER_FEATURES_SEL = 0x24,
       DRV_QUEUE_SEL = 0x30,
       DRV_QUEUE_MAX = 0x34,
       DRV_QUEUE_NUM = 0x38,
       DRV_QUEUE_READY = 0x44,
       DRV_NOTIFY = 0x50,
       DRV_INT_STATUS = 0x60,
       DRV_INT_ACK = 0x64,
       DRV_STATUS = 0x70,
       DRV_QUEUE_DESC = 0x80,
       DRV_QUEUE_AVAIL = 0x90,
       DRV_QUEUE_USED = 0xa0,
       DRV_CONFIG = 0x100
};

#define DRV_NEEDS_RESET 64u

struct drv_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

#define DRV_NEXT	  1
#define DRV_WRITE	  2
#define DRV_INDIRECT_DESC 4

struct drv_queue {
	uint16_t size;
	uint64_t desc, avail, used; /* guest addresses */
	uint16_t next_desc;	    /* descriptors are used in turn */
	uint16_t last_used;
};

struct drv {
	struct gm mem;
	uint64_t next_free; /* guest memory handed out so far */
	struct event_loop *loop;
	struct bus bus;
	struct irq_line line;
	struct vio_mmio *mmio;
	struct vio_dev *dev;
	uint64_t features; /* negotiated */
	struct drv_queue q[VIO_QUEUES_MAX];
};

struct drv_buf {
	uint64_t addr;
	uint32_t len;
	bool in; /* the device writes it */
};

/* The first makes memory, loop and bus; the second a transport for a device that uses them. */
void drv_init(struct drv *v, uint64_t bytes);
void drv_attach(struct drv *v, struct vio_dev *dev);
void drv_fini(struct drv *v);

uint32_t drv_read(struct drv *v, uint32_t reg);
void drv_write(struct drv *v, uint32_t reg, uint32_t value);
void *drv_ptr(struct drv *v, uint64_t addr);
uint64_t drv_alloc(struct drv *v, uint64_t len, uint64_t align);

/* Starts the device, from reset to DRIVER_OK, with those of `features` that it offers. */
void drv_start(struct drv *v, uint64_t features, uint16_t queue_size);
/* Do the steps of drv_start. */
void drv_negotiate(struct drv *v, uint64_t features);
void drv_setup_queue(struct drv *v, unsigned q, uint16_t size);

void drv_set_desc(struct drv *v, unsigned q, uint16_t i, struct drv_desc d);
/* Puts a head into the available ring. */
void drv_offer(struct drv *v, unsigned q, uint16_t head);
/* Makes a chain of descriptors and offers it; returns its head. */
uint16_t drv_add(struct drv *v, unsigned q, const struct drv_buf *bufs, unsigned n);
void drv_kick(struct drv *v, unsigned q);
/* Serves the loop until it has nothing to do. */
void drv_run(struct drv *v);
/* Takes the next used buffer. Returns false when there is none. */
bool drv_used(struct drv *v, unsigned q, uint16_t *head, uint32_t *len);
/* Returns the number of interrupts since the last call. */
uint64_t drv_interrupts(struct drv *v);

#endif
