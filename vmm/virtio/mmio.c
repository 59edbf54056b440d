// SPDX-License-Identifier: Apache-2.0
/* The MMIO transport (virtio v1.2, section 4.2); only version 2 of its registers. */
#include "vmm/virtio/mmio-internal.h"

#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_ring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"

#define MAGIC	  0x74726976u /* "virt" */
#define VENDOR_ID 0x544d4152u /* "RAMT" */

static void ring(const struct doorbell *b)
{
	/* Fails only when the counter is full: the doorbell rings already. */
	eventfd_write(b->fd, 1);
}

static uint64_t offered_features(const struct vio_mmio *m)
{
	return m->dev->ops->features | VIO_FEATURE(VIRTIO_RING_F_INDIRECT_DESC) |
	       VIO_FEATURE(VIRTIO_RING_F_EVENT_IDX) | VIO_FEATURE(VIRTIO_F_VERSION_1);
}

/* --- towards the driver --- */

/* The caller holds the lock. */
static void interrupt(struct vio_mmio *m, uint32_t reason)
{
	__atomic_fetch_or(&m->interrupt_status, reason, __ATOMIC_SEQ_CST);
	if (!m->resuming)
		irq_line_raise(m->line);
}

void vio_notify(struct vio_dev *d, unsigned queue)
{
	if (vq_should_notify(&d->vq[queue]))
		interrupt(d->mmio, INT_USED_BUFFER);
}

void vio_config_changed(struct vio_dev *d)
{
	struct vio_mmio *m = d->mmio;

	m->config_generation++;
	if (m->status & S_DRIVER_OK)
		interrupt(m, INT_CONFIG_CHANGE);
}

int vio_guest_fault(struct vio_dev *d, const char *what)
{
	struct vio_mmio *m = d->mmio;

	if (!m->fault_logged)
		log_warn("virtio device %u: the driver broke the protocol: %s", d->ops->id, what);
	m->fault_logged = true;
	d->active = false;
	if (!(m->status & S_NEEDS_RESET)) {
		m->status |= S_NEEDS_RESET;
		if (m->status & S_DRIVER_OK)
			interrupt(m, INT_CONFIG_CHANGE);
	}
	return -EPROTO;
}

/* --- the loop's side --- */

static void activate(struct vio_dev *d)
{
	struct err e = {0};

	if (d->ops->activate && d->ops->activate(d, &e) < 0) {
		vio_guest_fault(d, e.text);
		return;
	}
	d->active = true;
	/*
	 * Serves buffers that the driver offered before DRIVER_OK, since those kicks were ignored.
	 */
	for (unsigned q = 0; q < d->ops->queues; q++)
		ring(&d->mmio->bell[q]);
}

void vio_enter(struct vio_dev *d)
{
	struct vio_mmio *m = d->mmio;

	pthread_mutex_lock(&m->lock);
	if (m->reset_due) {
		m->reset_due = false;
		if (d->ops->reset)
			d->ops->reset(d);
	}
	if (m->activate_due) {
		m->activate_due = false;
		activate(d);
	}
}

void vio_leave(struct vio_dev *d)
{
	bool drained = d->drained;

	d->drained = false;
	pthread_mutex_unlock(&d->mmio->lock);
	if (drained && d->on_drained)
		d->on_drained(d->on_drained_arg);
	if (d->ops->after_turn)
		d->ops->after_turn(d);
}

void vio_config_copy(const void *config, size_t size, uint32_t offset, uint8_t *data, uint32_t len)
{
	if (offset < size)
		memcpy(data, (const uint8_t *)config + offset, min_u64(len, size - offset));
}

bool vio_pop_or_wait(struct vio_dev *d, unsigned queue, struct vq_chain *c)
{
	return vio_pop(d, queue, c) ||
	       (d->active && vq_enable_notification(&d->vq[queue]) && vio_pop(d, queue, c));
}

bool vio_pop(struct vio_dev *d, unsigned queue, struct vq_chain *c)
{
	int rc;

	if (!d->active || d->quiesced)
		return false;
	rc = vq_pop(&d->vq[queue], c);
	if (rc < 0)
		vio_guest_fault(d, d->vq[queue].fault);
	return rc > 0;
}

void vio_rekick(struct vio_dev *d, unsigned queue)
{
	ring(&d->mmio->bell[queue]);
}

void vio_drained(struct vio_dev *d)
{
	d->drained = true;
}

static void kick(struct vio_dev *d, unsigned queue)
{
	if (d->active && !d->quiesced && d->vq[queue].ready)
		d->ops->on_kick(d, queue);
}

static void on_doorbell(void *arg, uint32_t events)
{
	struct doorbell *b = arg;
	struct vio_dev *d = b->mmio->dev;
	eventfd_t count;

	if (eventfd_read(b->fd, &count) < 0)
		return;
	vio_enter(d);
	kick(d, b->queue);
	vio_leave(d);
}

/* --- registers, on vCPU threads --- */

static struct vq *selected(struct vio_mmio *m)
{
	return m->queue_sel < m->dev->ops->queues ? &m->vq[m->queue_sel] : NULL;
}

static uint16_t advertised_size(const struct vio_mmio *m)
{
	const struct vio_ops *ops = m->dev->ops;

	return ops->advertised_size[m->queue_sel] ? ops->advertised_size[m->queue_sel]
						  : ops->queue_size;
}

static uint32_t read_reg(struct vio_mmio *m, uint32_t reg)
{
	const struct vq *q = selected(m);

	switch (reg) {
	case VIRTIO_MMIO_MAGIC_VALUE:
		return MAGIC;
	case VIRTIO_MMIO_VERSION:
		return 2;
	case VIRTIO_MMIO_DEVICE_ID:
		return m->dev->ops->id;
	case VIRTIO_MMIO_VENDOR_ID:
		return VENDOR_ID;
	case VIRTIO_MMIO_DEVICE_FEATURES:
		return m->device_features_sel > 1
			       ? 0
			       : (uint32_t)(offered_features(m) >> (32 * m->device_features_sel));
	case VIRTIO_MMIO_QUEUE_NUM_MAX:
		return q ? advertised_size(m) : 0;
	case VIRTIO_MMIO_QUEUE_READY:
		return q ? q->ready : 0;
	case VIRTIO_MMIO_STATUS:
		return m->status;
	case VIRTIO_MMIO_CONFIG_GENERATION:
		return m->config_generation;
	default:
		/* No shared memory regions: their length and base read as all ones (4.2.2). */
		return reg >= VIRTIO_MMIO_SHM_LEN_LOW && reg <= VIRTIO_MMIO_SHM_BASE_HIGH
			       ? UINT32_MAX
			       : 0;
	}
}

void mmio_reset(struct vio_mmio *m)
{
	struct vio_dev *d = m->dev;

	for (unsigned q = 0; q < d->ops->queues; q++)
		vq_reset(&m->vq[q]);
	__atomic_store_n(&m->interrupt_status, 0, __ATOMIC_SEQ_CST);
	m->status = 0;
	m->device_features_sel = m->driver_features_sel = m->queue_sel = 0;
	d->driver_features = 0;
	d->active = false;
	m->activate_due = false;
	m->reset_due = true;
	ring(&m->bell[0]);
}

/* The valid transitions of the status (3.1.1). Others are ignored. */
static const struct {
	uint8_t from, to;
} status_steps[] = {
	{0, S_ACKNOWLEDGE},	   {0, S_FOUND}, {S_ACKNOWLEDGE, S_FOUND}, {S_FOUND, S_NEGOTIATED},
	{S_NEGOTIATED, S_RUNNING},
};

static bool step_allowed(uint32_t from, uint32_t to)
{
	for (size_t i = 0; i < ARRAY_LEN(status_steps); i++)
		if (status_steps[i].from == from && status_steps[i].to == to)
			return true;
	return false;
}

bool mmio_features_acceptable(const struct vio_mmio *m, uint64_t features)
{
	return (features & VIO_FEATURE(VIRTIO_F_VERSION_1)) && !(features & ~offered_features(m));
}

static void write_status(struct vio_mmio *m, uint32_t value)
{
	uint32_t now = m->status & ~S_NEEDS_RESET, keep = m->status & S_NEEDS_RESET;
	uint32_t to = value & ~S_NEEDS_RESET;

	if (!value) {
		mmio_reset(m);
		return;
	}
	if (to & S_FAILED) {
		m->status |= S_FAILED;
		m->dev->active = false;
		return;
	}
	if (!step_allowed(now, to))
		return;
	if (to == S_NEGOTIATED && !mmio_features_acceptable(m, m->dev->driver_features))
		return; /* the driver reads back that FEATURES_OK is not set (3.1.1, 6.) */
	m->status = to | keep;
	if (to == S_RUNNING && !keep) {
		m->activate_due = true;
		ring(&m->bell[0]);
	}
}

/* Sets the lower half of *v, or with `high` the upper one. */
static void set_half(uint64_t *v, bool high, uint32_t value)
{
	unsigned shift = high ? 32 : 0;

	*v = (*v & ~((uint64_t)UINT32_MAX << shift)) | (uint64_t)value << shift;
}

static void write_driver_features(struct vio_mmio *m, uint32_t value)
{
	if ((m->status & ~S_NEEDS_RESET) == S_FOUND && m->driver_features_sel <= 1)
		set_half(&m->dev->driver_features, m->driver_features_sel, value);
}

void mmio_negotiated(const struct vio_mmio *m, struct vq *q)
{
	q->indirect = m->dev->driver_features & VIO_FEATURE(VIRTIO_RING_F_INDIRECT_DESC);
	q->event_idx = m->dev->driver_features & VIO_FEATURE(VIRTIO_RING_F_EVENT_IDX);
}

static void write_queue_ready(struct vio_mmio *m, struct vq *q, uint32_t value)
{
	if (value != 1 || q->ready)
		return;
	mmio_negotiated(m, q);
	if (vq_enable(q) < 0)
		vio_guest_fault(m->dev, q->fault);
}

/* A queue can be set up between FEATURES_OK and DRIVER_OK, while it is not ready (3.1.1, 4.2.2). */
static void write_queue_reg(struct vio_mmio *m, uint32_t reg, uint32_t value)
{
	struct vq *q = selected(m);

	if (!q || q->ready || (m->status & ~S_NEEDS_RESET) != S_NEGOTIATED)
		return;
	switch (reg) {
	case VIRTIO_MMIO_QUEUE_NUM:
		q->size = value <= q->size_max ? (uint16_t)value : 0;
		break;
	case VIRTIO_MMIO_QUEUE_READY:
		write_queue_ready(m, q, value);
		break;
	case VIRTIO_MMIO_QUEUE_DESC_LOW:
	case VIRTIO_MMIO_QUEUE_DESC_HIGH:
		set_half(&q->desc_addr, reg == VIRTIO_MMIO_QUEUE_DESC_HIGH, value);
		break;
	case VIRTIO_MMIO_QUEUE_AVAIL_LOW:
	case VIRTIO_MMIO_QUEUE_AVAIL_HIGH:
		set_half(&q->avail_addr, reg == VIRTIO_MMIO_QUEUE_AVAIL_HIGH, value);
		break;
	case VIRTIO_MMIO_QUEUE_USED_LOW:
	case VIRTIO_MMIO_QUEUE_USED_HIGH:
		set_half(&q->used_addr, reg == VIRTIO_MMIO_QUEUE_USED_HIGH, value);
		break;
	}
}

static void write_reg(struct vio_mmio *m, uint32_t reg, uint32_t value)
{
	switch (reg) {
	case VIRTIO_MMIO_DEVICE_FEATURES_SEL:
		m->device_features_sel = value;
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES:
		write_driver_features(m, value);
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES_SEL:
		m->driver_features_sel = value;
		break;
	case VIRTIO_MMIO_QUEUE_SEL:
		m->queue_sel = value;
		break;
	case VIRTIO_MMIO_STATUS:
		write_status(m, value);
		break;
	default:
		write_queue_reg(m, reg, value);
	}
}

static void mmio_read(void *arg, uint64_t offset, uint8_t *data, uint32_t len)
{
	struct vio_mmio *m = arg;
	uint32_t value;

	if (offset >= VIRTIO_MMIO_CONFIG) {
		memset(data, 0, len);
		pthread_mutex_lock(&m->lock);
		if (m->dev->ops->config_read)
			m->dev->ops->config_read(m->dev, (uint32_t)offset - VIRTIO_MMIO_CONFIG,
						 data, len);
		pthread_mutex_unlock(&m->lock);
		return;
	}
	if (len != 4 || offset % 4)
		return; /* 4.2.2.2: only full-width accesses are valid */
	if (offset == VIRTIO_MMIO_INTERRUPT_STATUS) {
		value = __atomic_load_n(&m->interrupt_status, __ATOMIC_SEQ_CST);
	} else {
		pthread_mutex_lock(&m->lock);
		value = read_reg(m, (uint32_t)offset);
		pthread_mutex_unlock(&m->lock);
	}
	memcpy(data, &value, sizeof(value));
}

static void mmio_write(void *arg, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct vio_mmio *m = arg;
	uint32_t value;

	if (len != 4 || offset % 4)
		return;
	memcpy(&value, data, sizeof(value));
	if (offset == VIRTIO_MMIO_INTERRUPT_ACK) {
		__atomic_fetch_and(&m->interrupt_status, ~value, __ATOMIC_SEQ_CST);
	} else if (offset == VIRTIO_MMIO_QUEUE_NOTIFY) {
		if (value < m->dev->ops->queues)
			ring(&m->bell[value]);
	} else {
		pthread_mutex_lock(&m->lock);
		write_reg(m, (uint32_t)offset, value);
		pthread_mutex_unlock(&m->lock);
	}
}

static const struct bus_ops mmio_bus_ops = {mmio_read, mmio_write};

/* --- lifecycle --- */

static int add_doorbell(struct vio_mmio *m, unsigned queue, struct event_loop *loop, struct err *e)
{
	struct doorbell *b = &m->bell[queue];

	b->mmio = m;
	b->queue = queue;
	b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (b->fd < 0)
		return err_set(e, errno, "create the eventfd of a queue");
	return event_watch_add(loop, b->fd, EPOLLIN, on_doorbell, b, &b->watch, e);
}

static void free_device(struct vio_dev *d)
{
	if (d->ops->fini)
		d->ops->fini(d);
	free(d);
}

static void free_transport(struct vio_mmio *m)
{
	for (unsigned q = 0; q < VIO_QUEUES_MAX; q++) {
		event_watch_del(m->bell[q].watch);
		close_fd(&m->bell[q].fd);
	}
	pthread_mutex_destroy(&m->lock);
	free(m);
}

int vio_mmio_new(struct vio_mmio **out, struct vio_dev *dev, uint64_t addr, struct irq_line *line,
		 struct bus *bus, struct event_loop *loop, struct err *e)
{
	struct vio_mmio *m = calloc(1, sizeof(*m));
	int rc = 0;

	if (!m) {
		free_device(dev);
		return err_set(e, ENOMEM, "create a virtio device");
	}
	pthread_mutex_init(&m->lock, NULL);
	m->dev = dev;
	m->line = line;
	for (unsigned q = 0; q < VIO_QUEUES_MAX; q++) {
		m->bell[q].fd = -1;
		m->vq[q] = (struct vq){.mem = dev->mem, .size_max = dev->ops->queue_size};
		vq_reset(&m->vq[q]);
	}
	for (unsigned q = 0; q < dev->ops->queues && rc == 0; q++)
		rc = add_doorbell(m, q, loop, e);
	if (rc == 0)
		rc = bus_add(bus, BUS_MMIO, addr, VIO_MMIO_SIZE, &mmio_bus_ops, m, e);
	if (rc < 0) {
		err_context(e, "virtio device %u", dev->ops->id);
		free_device(dev);
		free_transport(m);
		return rc;
	}
	dev->mmio = m;
	dev->vq = m->vq;
	*out = m;
	return 0;
}

void vio_mmio_free(struct vio_mmio *m)
{
	if (!m)
		return;
	free_device(m->dev);
	free_transport(m);
}

struct vio_dev *vio_mmio_device(struct vio_mmio *m)
{
	return m->dev;
}

int vio_mmio_doorbell(struct vio_mmio *m, unsigned q)
{
	return q < m->dev->ops->queues ? m->bell[q].fd : -1;
}

bool vio_mmio_drain(struct vio_mmio *m)
{
	struct vio_dev *d = m->dev;
	bool drained;

	vio_enter(d);
	d->quiesced = true;
	drained = !d->ops->drain || d->ops->drain(d);
	vio_leave(d);
	return drained;
}

/* Lets the device continue, and serves the kicks that came while it was quiesced. */
static void go_on(struct vio_mmio *m)
{
	m->dev->quiesced = false;
	for (unsigned q = 0; q < m->dev->ops->queues; q++)
		kick(m->dev, q);
}

void vio_mmio_continue(struct vio_mmio *m)
{
	vio_enter(m->dev);
	go_on(m);
	vio_leave(m->dev);
}

void vio_mmio_resumed(struct vio_mmio *m)
{
	vio_enter(m->dev);
	m->resuming = true;
	/* It is not known which notifications the driver has had. */
	for (unsigned q = 0; q < m->dev->ops->queues; q++)
		m->vq[q].signalled_valid = false;
	if (m->dev->active && m->dev->ops->resumed)
		m->dev->ops->resumed(m->dev);
	go_on(m);
	m->resuming = false;
	/* An interrupt that was pending when the VM was saved must not be lost. */
	if (__atomic_load_n(&m->interrupt_status, __ATOMIC_SEQ_CST))
		irq_line_raise(m->line);
	vio_leave(m->dev);
}
