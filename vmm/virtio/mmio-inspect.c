// SPDX-License-Identifier: Apache-2.0
/* The state of the transport, its queues and its device, as human-readable text. */
#include <poll.h>

#include "vmm/virtio/mmio-internal.h"

static bool rings(const struct doorbell *b)
{
	struct pollfd p = {.fd = b->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void add_transport(const struct vio_mmio *m, struct report *r)
{
	const struct vio_dev *d = m->dev;

	report_add(
		r,
		"device %s: status 0x%x%s%s, interrupt status %u, interrupt %u, features 0x%llx\n",
		d->ops->name, m->status, d->active ? ", active" : ", not active",
		m->status & S_NEEDS_RESET ? ", needs a reset" : "",
		__atomic_load_n(&m->interrupt_status, __ATOMIC_SEQ_CST), m->line->gsi,
		(unsigned long long)d->driver_features);
	if (d->quiesced || m->reset_due || m->activate_due)
		report_add(r, "  %s%s%s\n", d->quiesced ? "quiesced or draining " : "",
			   m->reset_due ? "reset due " : "",
			   m->activate_due ? "activation due" : "");
}

/* Does not wait for the lock: a vCPU thread that holds it for long may be what went wrong. */
void vio_mmio_inspect(struct vio_mmio *m, struct report *r)
{
	struct vio_dev *d = m->dev;

	if (pthread_mutex_trylock(&m->lock) != 0) {
		report_add(r, "device %s: not shown, since a vCPU thread holds its lock\n",
			   d->ops->name);
		return;
	}
	add_transport(m, r);
	for (unsigned q = 0; q < d->ops->queues; q++) {
		report_add(r, "  queue %u%s: ", q,
			   rings(&m->bell[q]) ? " (kick not served yet)" : "");
		vq_inspect(&m->vq[q], r);
	}
	if (d->ops->inspect)
		d->ops->inspect(d, r);
	pthread_mutex_unlock(&m->lock);
}
