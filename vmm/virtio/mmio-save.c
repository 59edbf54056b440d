// SPDX-License-Identifier: Apache-2.0
/* Saves and restores the transport and its device, as a section of the state file. */
#include "vmm/virtio/mmio-internal.h"

#include <errno.h>

#define SAVE_VERSION	 1
#define DEVICE_STATE_MAX 4096 /* maximum for one device's own fields */

void vio_mmio_save(struct vio_mmio *m, struct wire *w)
{
	struct vio_dev *d = m->dev;
	uint8_t own[DEVICE_STATE_MAX];
	struct wire device = wire_on(own, sizeof(own));

	vio_enter(d);
	wire_put_u32(w, SAVE_VERSION);
	wire_put_u32(w, d->ops->id);
	wire_put_u32(w, m->status);
	wire_put_u32(w, __atomic_load_n(&m->interrupt_status, __ATOMIC_SEQ_CST));
	wire_put_u64(w, d->driver_features);
	wire_put_u32(w, m->device_features_sel);
	wire_put_u32(w, m->driver_features_sel);
	wire_put_u32(w, m->queue_sel);
	wire_put_u32(w, m->config_generation);
	wire_put_u32(w, d->ops->queues);
	for (unsigned q = 0; q < d->ops->queues; q++)
		vq_save(&m->vq[q], w);
	if (d->ops->save)
		d->ops->save(d, &device);
	w->bad |= device.bad;
	wire_put_str(w, own, device.pos);
	vio_leave(d);
}

static bool status_exists(uint32_t status)
{
	status &= ~(uint32_t)(S_NEEDS_RESET | S_FAILED);
	return status == 0 || status == S_ACKNOWLEDGE || status == S_FOUND ||
	       status == S_NEGOTIATED || status == S_RUNNING;
}

static int restore_registers(struct vio_mmio *m, struct wire *r, struct err *e)
{
	struct vio_dev *d = m->dev;
	uint32_t version = wire_get_u32(r), id = wire_get_u32(r);

	if (version != SAVE_VERSION || id != d->ops->id)
		return err_say(
			e, EINVAL,
			"saved fields of device %u in version %u, expected device %u in version %u",
			id, version, d->ops->id, SAVE_VERSION);
	m->status = wire_get_u32(r);
	m->interrupt_status = wire_get_u32(r);
	d->driver_features = wire_get_u64(r);
	m->device_features_sel = wire_get_u32(r);
	m->driver_features_sel = wire_get_u32(r);
	m->queue_sel = wire_get_u32(r);
	m->config_generation = wire_get_u32(r);
	if (r->bad || !status_exists(m->status))
		return err_say(e, EINVAL, "invalid device status %#x", m->status);
	if (m->interrupt_status & ~(INT_USED_BUFFER | INT_CONFIG_CHANGE))
		return err_say(e, EINVAL, "invalid interrupt status %#x", m->interrupt_status);
	if ((m->status & S_FEATURES_OK) && !mmio_features_acceptable(m, d->driver_features))
		return err_say(e, EINVAL, "driver features %#llx were never offered",
			       (unsigned long long)d->driver_features);
	return 0;
}

static int restore_queues(struct vio_mmio *m, struct wire *r, struct err *e)
{
	uint32_t n = wire_get_u32(r);

	if (n != m->dev->ops->queues)
		return err_say(e, EINVAL, "%u queues, expected %u", n, m->dev->ops->queues);
	for (unsigned q = 0; q < n; q++) {
		if (vq_restore(&m->vq[q], r, e) < 0)
			return err_context(e, "queue %u", q);
		mmio_negotiated(m, &m->vq[q]);
		if (m->vq[q].ready && !(m->status & S_FEATURES_OK))
			return err_say(e, EINVAL, "queue %u is ready before FEATURES_OK", q);
	}
	return 0;
}

static int restore_device(struct vio_dev *d, struct wire *r, struct err *e)
{
	size_t len;
	const uint8_t *own = wire_get_str(r, &len, DEVICE_STATE_MAX);
	struct wire device = wire_from(own, len);

	if (r->bad)
		return err_say(e, EINVAL, "the fields end early");
	if (d->ops->restore) {
		int rc = d->ops->restore(d, &device, e);

		if (rc < 0)
			return rc;
	}
	if (device.bad || wire_left(&device))
		return err_say(e, EINVAL, "the device's own fields have a wrong length");
	return 0;
}

static int restore_all(struct vio_mmio *m, struct wire *r, struct err *e)
{
	int rc = restore_registers(m, r, e);

	if (rc == 0)
		rc = restore_queues(m, r, e);
	return rc == 0 ? restore_device(m->dev, r, e) : rc;
}

int vio_mmio_restore(struct vio_mmio *m, struct wire *r, struct err *e)
{
	struct vio_dev *d = m->dev;
	int rc;

	pthread_mutex_lock(&m->lock);
	rc = restore_all(m, r, e);
	if (rc == 0) {
		d->quiesced = true;
		d->active = (m->status & ~(uint32_t)S_RUNNING) == 0 && (m->status & S_DRIVER_OK);
	} else {
		mmio_reset(m);
		err_context(e, "virtio device %u", d->ops->id);
	}
	pthread_mutex_unlock(&m->lock);
	return rc;
}
