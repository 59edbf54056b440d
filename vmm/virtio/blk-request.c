// SPDX-License-Identifier: Apache-2.0
/* The life of a request: it waits for conflicting requests, runs, and is answered. */
#include "vmm/virtio/blk-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/elements.h"
#include "base/log.h"

/* Delay before a submission is retried when the kernel was short of memory. */
#define RETRY_NS 1000000u

/* --- from start to answer --- */

bool blk_has_request(const struct blk *b)
{
	return b->used < QUEUE_SIZE || !list_empty(&b->free);
}

static struct blk_request *take_free(struct blk *b)
{
	struct blk_request *r = list_first_of(&b->free, struct blk_request, node);

	if (!r)
		return &b->request[b->used++];
	list_del(&r->node);
	return r;
}

struct blk_request *blk_get_request(struct blk *b)
{
	struct blk_request *r = take_free(b);

	r->orphan = r->failed_punch = r->synced = false;
	r->hold = HOLD_NONE;
	r->phase = PHASE_DATA;
	r->status = NULL;
	r->niov = 0;
	return r;
}

static void log_error_once(struct blk *b, int error)
{
	if (!b->error_logged)
		log_error("disk: %s; the guest gets an I/O error (logged once)", strerror(error));
	b->error_logged = true;
}

static void release(struct blk *b, struct blk_request *r)
{
	list_del(&r->node);
	free(r->bounce);
	r->bounce = NULL;
	/*
	 * The request used last is taken first, so that memory an idle guest never needs is never
	 * touched.
	 */
	list_add_tail(b->free.next, &r->node);
}

void blk_answer(struct blk *b, uint16_t head, uint8_t *status, uint8_t value, uint64_t written)
{
	__atomic_store_n(status, value, __ATOMIC_RELAXED);
	vq_push(&b->dev.vq[0], head, (uint32_t)written + 1);
}

static void finish(struct blk *b, struct blk_request *r, int error)
{
	if (r->kind == &blk_copy_up_kind) {
		release(b, r);
		blk_on_copied_up(b, error);
		return;
	}
	if (error && !r->orphan)
		log_error_once(b, -error);
	if (!r->orphan)
		blk_answer(b, r->head, r->status, error ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK,
			   r->kind == &blk_kinds[VIRTIO_BLK_T_IN] && !error ? r->end - r->from : 0);
	release(b, r);
}

/* --- rate --- */

bool blk_is_limited(struct blk *b)
{
	uint64_t now = now_ns(), bytes = bucket_wait_ns(&b->bytes, now),
		 ops = bucket_wait_ns(&b->ops, now);

	if ((!bytes && !ops) || b->dev.quiesced)
		return false;
	if (!b->limited.due_ns)
		event_timer_set(b->dev.loop, &b->limited, bytes > ops ? bytes : ops);
	return true;
}

void blk_charge(struct blk *b, const struct blk_request *r, uint64_t bytes, unsigned ops)
{
	uint64_t now = now_ns();

	if (r->kind == &blk_copy_up_kind)
		return;
	bucket_use(&b->bytes, bytes, now);
	bucket_use(&b->ops, ops, now);
}

/* A finished request is answered at once, even when the guest has exceeded its limit. */
static bool has_to_wait(struct blk *b, const struct blk_request *r)
{
	return !r->orphan && r->kind != &blk_copy_up_kind && r->at < r->end && blk_is_limited(b);
}

/* Moves a running request on: at its start and after each completion. */
static void advance(struct blk *b, struct blk_request *r)
{
	if (has_to_wait(b, r)) {
		r->hold = HOLD_RATE;
		return;
	}
	int rc = r->orphan ? 0 : r->kind->step(b, r);
	if (rc <= 0)
		finish(b, r, rc);
}

/*
 * True when the host's disk is full, which is not a fault of the guest's disk: an I/O error would
 * make the guest's file system fail for good. The write waits for space, like a write to a slow
 * disk. It may wait while the device is quiesced, since then no operation is in the ring.
 */
static bool is_enospc(const struct blk_request *r, int res)
{
	return (res == -ENOSPC || res == -EDQUOT) && !r->orphan && r->kind != &blk_copy_up_kind;
}

static void wait_for_space(struct blk *b, struct blk_request *r)
{
	if (!b->enospc_logged)
		log_warn("disk: the host's disk is full; writes of the guest wait for space "
			 "(logged once)");
	b->enospc_logged = true;
	r->hold = HOLD_ENOSPC;
	b->nenospc++;
	if (!b->enospc.due_ns)
		event_timer_set(b->dev.loop, &b->enospc, BLK_ENOSPC_RETRY_NS);
}

/*
 * Calls `move` for each request held for `reason`. A held request is running but has no operation
 * in the ring, so no completion moves it on.
 */
static void each_held(struct blk *b, enum hold reason,
		      void (*move)(struct blk *b, struct blk_request *r))
{
	list_each_of_safe (r, struct blk_request, node, &b->running) {
		if (r->hold != reason)
			continue;
		r->hold = HOLD_NONE;
		b->nenospc -= reason == HOLD_ENOSPC;
		move(b, r);
	}
}

static void give_up(struct blk *b, struct blk_request *r)
{
	finish(b, r, r->orphan ? 0 : -ENOSPC);
}

static bool conflicts(const struct blk_request *x, const struct blk_request *y)
{
	if (!x->kind->writes && !y->kind->writes)
		return false;
	return x->from / CLUSTER * CLUSTER < y->end && y->from / CLUSTER * CLUSTER < x->end;
}

/* True when no conflicting request runs, or waits and came before `r`. */
static bool may_run(const struct blk *b, const struct blk_request *r)
{
	list_each_of (x, const struct blk_request, node, &b->running)
		if (conflicts(x, r))
			return false;
	list_each_of (w, const struct blk_request, node, &b->waiting) {
		if (w == r)
			return true;
		if (conflicts(w, r))
			return false;
	}
	return true;
}

static void run(struct blk *b, struct blk_request *r)
{
	list_del(&r->node);
	list_add_tail(&b->running, &r->node);
	advance(b, r);
}

static void run_waiting(struct blk *b)
{
	list_each_of_safe (r, struct blk_request, node, &b->waiting)
		if (may_run(b, r))
			run(b, r);
}

void blk_retry_held(struct blk *b, enum hold reason)
{
	each_held(b, reason, advance);
	run_waiting(b);
}

void blk_start(struct blk *b, struct blk_request *r)
{
	if (may_run(b, r))
		run(b, r);
	else
		list_add_tail(&b->waiting, &r->node);
}

/* --- the ring --- */

void blk_submit(struct blk *b)
{
	while (io_uring_sq_ready(&b->ring)) {
		if (io_uring_submit(&b->ring) < 0) {
			/* The kernel is short of memory. What it did not accept stays queued. */
			event_timer_set(b->dev.loop, &b->retry, RETRY_NS);
			return;
		}
	}
}

static void on_retry(void *arg)
{
	struct blk *b = arg;

	vio_enter(&b->dev);
	blk_submit(b);
	vio_leave(&b->dev);
}

static void complete(struct blk *b, struct blk_request *r, int res)
{
	int rc = res;

	if (res == -EINTR || res == -EAGAIN || blk_punch_refused(r, res))
		rc = 0; /* repeat the step; if a hole was refused, it writes zeros this time */
	else if (res >= 0)
		rc = r->kind->done(b, r, (uint64_t)res);
	if (is_enospc(r, rc))
		wait_for_space(b, r);
	else if (rc < 0)
		finish(b, r, rc);
	else
		advance(b, r);
}

void blk_reap(struct blk *b)
{
	struct io_uring_cqe *cqe;
	bool was_quiet = !b->in_ring;

	while (io_uring_peek_cqe(&b->ring, &cqe) == 0) {
		struct blk_request *r = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&b->ring, cqe);
		b->in_ring--;
		complete(b, r, res);
	}
	run_waiting(b);
	blk_copy_up_more(b);
	if (b->dev.quiesced && !b->in_ring && !was_quiet)
		vio_drained(&b->dev);
}

void blk_forget_requests(struct blk *b)
{
	/*
	 * The kernel may still write to the buffers of running requests. A driver that resets the
	 * device in mid-flight and reuses them at once harms only itself.
	 */
	list_each_of (r, struct blk_request, node, &b->running)
		r->orphan = r->kind != &blk_copy_up_kind;
	each_held(b, HOLD_ENOSPC, give_up);
	each_held(b, HOLD_RATE, give_up);
	list_each_of_safe (r, struct blk_request, node, &b->waiting)
		if (r->kind != &blk_copy_up_kind)
			release(b, r);
	run_waiting(b);
}

void blk_await_requests(struct blk *b)
{
	struct io_uring_cqe *cqe;

	while (!list_empty(&b->running)) {
		/*
		 * Submits operations that were left over for lack of memory, or started by a
		 * completion.
		 */
		io_uring_submit(&b->ring);
		if (io_uring_wait_cqe(&b->ring, &cqe) < -EINTR)
			return;
		blk_reap(b);
	}
}

void blk_init_requests(struct blk *b)
{
	list_init(&b->free); /* release inserts before b->free.next */
	b->retry = (struct event_timer){.fn = on_retry, .arg = b};
}
