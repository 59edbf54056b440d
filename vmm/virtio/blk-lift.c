// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps the chain of layers short: what the topmost sealed layers hold is copied into the writable
 * one, piece by piece, until they are of no more use and leave the chain. It runs as requests like
 * the driver's, so that it has no rules of its own for what may happen at the same time.
 */
#include "vmm/virtio/blk-internal.h"

#include <string.h>

#include "base/log.h"

/* Between two pieces, so that the guest's requests go first. */
#define LIFT_EVERY_NS 1000000u
#define STILL_NS      100000000u /* until it is tried again, in a pause that may be long */
#define LIFT_BYTES    (64u << 10)

/* In the background when there are more than so many, and before the device stands still (a fork
 * would add one) when there are nearly as many as there can be. */
#define SEALED_MANY   32
#define SEALED_URGENT (LAYER_SEALED_MAX - 10)

static bool is_urgent(const struct blk *b)
{
	return b->dev.still && layer_lifting(b->disk) && layer_sealed(b->disk) > SEALED_URGENT;
}

static void start_piece(struct blk *b)
{
	uint64_t from, end;
	struct request *r;

	if (!blk_has_request(b)) {
		loop_timer_set(b->dev.loop, &b->lift, LIFT_EVERY_NS);
		return;
	}
	if (!layer_lift_next(b->disk, LIFT_BYTES, &from, &end))
		return;
	r = blk_get_request(b);
	r->kind = &blk_lift_kind;
	r->from = r->at = from;
	r->end = end;
	b->lifting = true;
	blk_start(b, r);
}

void blk_lift_more(struct blk *b)
{
	if (!b->disk || b->lifting || !b->dev.still)
		return;
	layer_lift_plan(b->disk, SEALED_URGENT);
	if (is_urgent(b))
		start_piece(b);
}

void blk_on_lifted(struct blk *b, int error)
{
	b->lifting = false;
	if (error) {
		log_warn("disk: the chain of layers stays long: %s", strerror(-error));
		layer_lift_stop(b->disk);
	} else if (is_urgent(b)) {
		start_piece(b);
	} else if (layer_lifting(b->disk)) {
		loop_timer_set(b->dev.loop, &b->lift, LIFT_EVERY_NS);
	}
}

static void on_lift(void *arg)
{
	struct blk *b = arg;

	if (b->dev.still) {
		loop_timer_set(b->dev.loop, &b->lift, STILL_NS);
		return;
	}
	vio_enter(&b->dev);
	if (!b->lifting && layer_lifting(b->disk)) {
		start_piece(b);
		blk_submit(b);
	}
	vio_leave(&b->dev);
}

void blk_init_lift(struct blk *b)
{
	b->lift = (struct loop_timer){.fn = on_lift, .arg = b};
}

void vio_blk_sealed(struct vio_dev *d)
{
	struct blk *b = blk_self(d);

	vio_enter(d);
	layer_lift_plan(b->disk, SEALED_MANY);
	if (layer_lifting(b->disk))
		loop_timer_set(d->loop, &b->lift, LIFT_EVERY_NS);
	vio_leave(d);
}
