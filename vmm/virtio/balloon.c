// SPDX-License-Identifier: Apache-2.0
/*
 * Memory balloon (virtio v1.2, 5.5), used for free page reporting only: the driver reports pages
 * that the guest does not use, and the host frees them until the guest touches them again. The
 * device never asks the guest to inflate; if a driver does so anyway, the guest's memory stays as
 * it is.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "vmm/virtio/device.h"

/* As drivers number them: they skip queues whose feature was not offered, unlike 5.5.2. */
enum { QUEUE_INFLATE, QUEUE_DEFLATE, QUEUE_REPORTING, QUEUES };

#define QUEUE_SIZE  128
#define F_REPORTING (1ull << 5)

/* Bytes per turn of the loop: where pages are small, the kernel takes 0.2 to 0.6 ms per MiB. */
#define TURN_BYTES (2ull << 20)

struct balloon {
	struct vio_dev dev;
	vio_discard *discard;
	void *arg;
	bool failed;   /* a discard failed, and was logged */
	bool reported; /* a report is in progress, in `chain` */
	unsigned at;   /* index of its current buffer */
	uint64_t done; /* bytes of that buffer that are done */
	struct vq_chain chain;
};

static struct balloon *self(struct vio_dev *d)
{
	return (struct balloon *)d;
}

static void give_back(struct balloon *b, const uint8_t *p, uint64_t bytes)
{
	int r = b->discard(b->arg, (uint64_t)(p - b->dev.mem->base), bytes);

	if (r && !b->failed) {
		b->failed = true;
		log_warn("balloon: can't free pages that the guest does not use: %s (logged once)",
			 strerror(-r));
	}
}

/* Discards up to `most` bytes of the chain. Returns how many. */
static uint64_t work(struct balloon *b, uint64_t most)
{
	uint64_t worked = 0;

	while (b->at < b->chain.nin && worked < most) {
		const struct iovec *range = vq_in(&b->chain) + b->at;
		uint64_t bytes = range->iov_len - b->done;

		if (bytes > most - worked)
			bytes = most - worked;
		give_back(b, (const uint8_t *)range->iov_base + b->done, bytes);
		worked += bytes;
		b->done += bytes;
		if (b->done == range->iov_len) {
			b->done = 0;
			b->at++;
		}
	}
	return worked;
}

static bool next_report(struct balloon *b)
{
	struct vio_dev *d = &b->dev;

	if (b->reported)
		return true;
	if (!vio_pop_or_wait(d, QUEUE_REPORTING, &b->chain))
		return false;
	if (b->chain.nout) {
		vio_guest_fault(d, "readable buffer in a report of free pages");
		return false;
	}
	b->reported = true;
	b->at = 0;
	b->done = 0;
	return true;
}

/* Frees reported pages. The guest does not use them until it gets their chain back. */
static void take_reports(struct balloon *b)
{
	struct vio_dev *d = &b->dev;
	uint64_t left = TURN_BYTES;
	unsigned chains = QUEUE_SIZE;

	while (left && chains && next_report(b)) {
		left -= work(b, left);
		if (b->at < b->chain.nin)
			break;
		vq_push(&d->vq[QUEUE_REPORTING], b->chain.head, 0);
		b->reported = false;
		chains--;
	}
	if (chains < QUEUE_SIZE)
		vio_notify(d, QUEUE_REPORTING);
	if (d->active && (!left || !chains))
		vio_rekick(d, QUEUE_REPORTING);
}

static void acknowledge(struct vio_dev *d, unsigned queue)
{
	unsigned left = QUEUE_SIZE;
	struct vq_chain c;

	for (; left && vio_pop_or_wait(d, queue, &c); left--)
		vq_push(&d->vq[queue], c.head, 0);
	vio_notify(d, queue);
	if (!left)
		vio_rekick(d, queue);
}

static void balloon_on_kick(struct vio_dev *d, unsigned queue)
{
	if (queue == QUEUE_REPORTING)
		take_reports(self(d));
	else
		acknowledge(d, queue);
}

static void balloon_reset(struct vio_dev *d)
{
	self(d)->reported = false;
}

/*
 * Puts a chain in progress back, to start it again later. The guest does not use the chain's pages
 * until the chain is answered.
 */
static bool balloon_drain(struct vio_dev *d)
{
	struct balloon *b = self(d);

	if (b->reported)
		vq_unpop(&d->vq[QUEUE_REPORTING]);
	b->reported = false;
	return true;
}

static const struct vio_ops balloon_ops = {
	.name = "balloon",
	.id = 5,
	.queues = QUEUES,
	.queue_size = QUEUE_SIZE,
	.features = F_REPORTING,
	.reset = balloon_reset,
	.on_kick = balloon_on_kick,
	.drain = balloon_drain,
};

int vio_balloon_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop,
		    vio_discard *discard, void *arg, struct err *e)
{
	struct balloon *b = calloc(1, sizeof(*b));

	if (!b)
		return err_set(e, ENOMEM, "create the balloon device");
	b->dev = (struct vio_dev){.ops = &balloon_ops, .mem = mem, .loop = loop};
	b->discard = discard;
	b->arg = arg;
	*out = &b->dev;
	return 0;
}
