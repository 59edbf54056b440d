// SPDX-License-Identifier: Apache-2.0
/*
 * The device's side of a split virtqueue (virtio v1.2, 2.7). Everything in guest memory is hostile
 * and may change at any moment: each field is loaded once, checked, then used.
 */
#ifndef RAMET_VMM_VIRTIO_QUEUE_H
#define RAMET_VMM_VIRTIO_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/report.h"
#include "base/wire.h"
#include "vmm/kvm/memory.h"

#define VQ_SIZE_MAX 256 /* descriptors in a queue and in a chain */

struct vring_desc;
struct vring_avail;
struct vring_used;

struct vq {
	const struct gm *mem;
	uint16_t size_max; /* offered by the device */

	/* Set by the driver before it sets ready. */
	uint16_t size;
	bool ready;
	uint64_t desc_addr, avail_addr, used_addr; /* guest physical */
	bool indirect, event_idx;		   /* negotiated */

	/* Host addresses of the three parts, checked when the queue became ready. */
	const struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;

	uint16_t next_avail;	 /* chains taken so far, modulo 2^16 */
	uint16_t next_used;	 /* chains returned so far, modulo 2^16 */
	uint16_t signalled_used; /* next_used at the last notification of the driver */
	bool signalled_valid;	 /* false: the next push notifies if the driver allows it */
	const char *fault;	 /* the driver's protocol error, when vq_pop returns -EPROTO */
};

/*
 * A chain of buffers as checked host addresses: `nout` for the device to read, then `nin` for it to
 * write. Empty descriptors are left out.
 */
struct vq_chain {
	uint16_t head;
	unsigned nout, nin;
	uint64_t out_bytes, in_bytes;
	struct iovec iov[VQ_SIZE_MAX];
};

static inline const struct iovec *vq_out(const struct vq_chain *c)
{
	return c->iov;
}

static inline const struct iovec *vq_in(const struct vq_chain *c)
{
	return c->iov + c->nout;
}

/* Resets the queue to the state before the driver touched it. */
void vq_reset(struct vq *q);
/*
 * Checks size and addresses and maps the parts. Returns -EPROTO, with q->fault set, when they are
 * invalid.
 */
int vq_enable(struct vq *q);

/*
 * Takes the next chain. Returns 1, 0 when there is none, or -EPROTO when the driver broke the
 * protocol (q->fault says how; nothing was taken).
 */
int vq_pop(struct vq *q, struct vq_chain *c);
/*
 * Puts back the last chain that was taken and not pushed. A second call puts back the one before.
 */
void vq_unpop(struct vq *q);
/* Returns chain `head` to the driver with `written` bytes in its writable part. */
void vq_push(struct vq *q, uint16_t head, uint32_t written);
/*
 * Return several chains that the driver must see at once: vq_put returns the i-th, from 0 on, then
 * vq_publish makes all `n` visible.
 */
void vq_put(struct vq *q, uint16_t i, uint16_t head, uint32_t written);
void vq_publish(struct vq *q, uint16_t n);
/* Asks the driver for a kick when it adds a chain. Returns true when one is there already. */
bool vq_enable_notification(struct vq *q);
/*
 * Does the same for a chain that the driver offers after its first `index` chains, which may be
 * taken or not.
 */
bool vq_enable_notification_at(struct vq *q, uint16_t index);
/* True when the driver must be notified of what was pushed since the last call. */
bool vq_should_notify(struct vq *q);
/* Returns the driver's index of offered chains, which moves when it offers more. */
uint16_t vq_offered(const struct vq *q);

/* Adds a line for people: the indices here and in guest memory, and which side has to act. */
void vq_inspect(const struct vq *q, struct report *r);

/* Save and restore the fields. A restore checks them like values from the driver. */
void vq_save(const struct vq *q, struct wire *w);
int vq_restore(struct vq *q, struct wire *r, struct err *e);

/*
 * Copy between a buffer and `n` iovecs, from byte `offset` on. Return the number of bytes copied,
 * less than `len` when the iovecs end.
 */
size_t iov_read(const struct iovec *iov, unsigned n, size_t offset, void *out, size_t len);
size_t iov_write(const struct iovec *iov, unsigned n, size_t offset, const void *data, size_t len);
/* Zeroes `len` bytes from `offset` on. */
void iov_zero(const struct iovec *iov, unsigned n, size_t offset, size_t len);
/*
 * Stores the part [offset, offset + len) of `iov` as iovecs in `out` (with room for n). Returns
 * their number.
 */
unsigned iov_slice(const struct iovec *iov, unsigned n, size_t offset, size_t len,
		   struct iovec *out);

#endif
