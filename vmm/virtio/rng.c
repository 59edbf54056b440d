// SPDX-License-Identifier: Apache-2.0
/* Entropy device (virtio v1.2, 5.4): fills every buffer from the host's random number generator. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "vmm/virtio/device.h"

#define QUEUE_SIZE 64
/* Maximum per buffer; the device may return less than asked for (5.4.6.2). */
#define REQUEST_MAX 4096u

static uint32_t fill(const struct vq_chain *c)
{
	uint8_t bytes[REQUEST_MAX];
	size_t want = c->in_bytes < REQUEST_MAX ? c->in_bytes : REQUEST_MAX;
	ssize_t got = getrandom(bytes, want, 0);

	if (got <= 0)
		return 0;
	return (uint32_t)iov_write(vq_in(c), c->nin, 0, bytes, (size_t)got);
}

static void rng_on_kick(struct vio_dev *d, unsigned queue)
{
	unsigned left = QUEUE_SIZE;
	struct vq_chain c;

	for (; left && vio_pop_or_wait(d, queue, &c); left--) {
		if (c.nout) {
			vio_guest_fault(d, "readable buffer for the entropy device");
			return;
		}
		vq_push(&d->vq[queue], c.head, fill(&c));
	}
	vio_notify(d, queue);
	if (!left)
		vio_rekick(d, queue);
}

static const struct vio_ops rng_ops = {
	.name = "rng",
	.id = 4,
	.queues = 1,
	.queue_size = QUEUE_SIZE,
	.on_kick = rng_on_kick,
};

int vio_rng_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop, struct err *e)
{
	struct vio_dev *d = calloc(1, sizeof(*d));

	if (!d)
		return err_set(e, ENOMEM, "make the entropy device");
	*d = (struct vio_dev){.ops = &rng_ops, .mem = mem, .loop = loop};
	*out = d;
	return 0;
}
