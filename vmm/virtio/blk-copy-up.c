// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps the chain of layers short: copies the clusters of the topmost sealed layers up into the
 * writable layer, chunk by chunk, until those layers are not needed and leave the chain. Copying
 * runs as requests like the driver's, so it needs no concurrency rules of its own.
 */
#include "vmm/virtio/blk-internal.h"

#include <string.h>

#include "base/log.h"

/* Pause between two chunks, so that the guest's requests go first. */
#define COPY_UP_INTERVAL_NS 1000000u
/* Delay before the next attempt while quiesced, which may last long. */
#define QUIESCED_RETRY_NS 100000000u
#define COPY_UP_BYTES	  (64u << 10)

/*
 * Copying starts in the background above SEALED_MANY layers. Above SEALED_URGENT, it also runs
 * while the device is being drained, since a fork would add a layer.
 */
#define SEALED_MANY   32
#define SEALED_URGENT (LAYER_SEALED_MAX - 10)

static bool is_urgent(const struct blk *b)
{
	return b->dev.quiesced && layer_copying_up(b->disk) &&
	       layer_sealed(b->disk) > SEALED_URGENT;
}

static void start_chunk(struct blk *b)
{
	uint64_t from, end;
	struct blk_request *r;

	if (!blk_has_request(b)) {
		event_timer_set(b->dev.loop, &b->copy_up, COPY_UP_INTERVAL_NS);
		return;
	}
	if (!layer_copy_up_next(b->disk, COPY_UP_BYTES, &from, &end))
		return;
	r = blk_get_request(b);
	r->kind = &blk_copy_up_kind;
	r->from = r->at = from;
	r->end = end;
	b->copying_up = true;
	blk_start(b, r);
}

void blk_copy_up_more(struct blk *b)
{
	if (!b->disk || b->copying_up || !b->dev.quiesced)
		return;
	layer_copy_up_plan(b->disk, SEALED_URGENT);
	if (is_urgent(b))
		start_chunk(b);
}

void blk_on_copied_up(struct blk *b, int error)
{
	b->copying_up = false;
	if (error) {
		log_warn("disk: can't copy layers up, so the chain stays long: %s",
			 strerror(-error));
		layer_copy_up_stop(b->disk);
	} else if (is_urgent(b)) {
		start_chunk(b);
	} else if (layer_copying_up(b->disk)) {
		event_timer_set(b->dev.loop, &b->copy_up, COPY_UP_INTERVAL_NS);
	}
}

static void on_copy_up(void *arg)
{
	struct blk *b = arg;

	if (b->dev.quiesced) {
		event_timer_set(b->dev.loop, &b->copy_up, QUIESCED_RETRY_NS);
		return;
	}
	vio_enter(&b->dev);
	if (!b->copying_up && layer_copying_up(b->disk)) {
		start_chunk(b);
		blk_submit(b);
	}
	vio_leave(&b->dev);
}

void blk_init_copy_up(struct blk *b)
{
	b->copy_up = (struct event_timer){.fn = on_copy_up, .arg = b};
}

void vio_blk_sealed(struct vio_dev *d)
{
	struct blk *b = blk_self(d);

	vio_enter(d);
	layer_copy_up_plan(b->disk, SEALED_MANY);
	if (layer_copying_up(b->disk))
		event_timer_set(d->loop, &b->copy_up, COPY_UP_INTERVAL_NS);
	vio_leave(d);
}
