// SPDX-License-Identifier: Apache-2.0
/*
 * A split virtqueue (virtio v1.2, 2.7), seen from the device. All that lies in guest memory is
 * hostile and may change at any moment: every field is loaded once, checked, then used.
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

#define VQ_SIZE_MAX 256 /* descriptors in a queue, and in one chain */

struct vq_desc;
struct vq_avail;
struct vq_used;

struct vq {
	const struct gm *mem;
	uint16_t size_max; /* what the device offers */

	/* Set by the driver before it sets ready. */
	uint16_t size;
	bool ready;
	uint64_t desc_addr, avail_addr, used_addr; /* guest physical */
	bool indirect, event_idx;		   /* negotiated */

	/* Host addresses of the three parts, checked when the queue became ready. */
	const struct vq_desc *desc;
	struct vq_avail *avail;
	struct vq_used *used;

	uint16_t next_avail; /* chains taken so far, modulo 2^16 */
	uint16_t next_used;  /* chains given back so far, modulo 2^16 */
	uint16_t told_used;  /* next_used when the driver was last told */
	bool told_valid;     /* false after a restore: the next answer is told in any case */
	const char *fault;   /* what the driver did wrong, when vq_pop says -EPROTO */
};

/* A chain of buffers as checked host addresses: `nout` that the device reads, then `nin` that it
 * writes. Empty descriptors are left out. */
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

/* Back to the state before the driver touched it. */
void vq_reset(struct vq *q);
/* Checks size and addresses and maps the parts; -EPROTO (q->fault is set) when they are no good. */
int vq_enable(struct vq *q);

/*
 * Takes the next chain: 1, 0 when there is none, -EPROTO when the driver broke the protocol
 * (q->fault says how; nothing was taken).
 */
int vq_pop(struct vq *q, struct vq_chain *c);
/* Puts the chain taken last back, which was not pushed; again, the one before it, and so on. */
void vq_unpop(struct vq *q);
/* Gives chain `head` back with `written` bytes in its writable part. */
void vq_push(struct vq *q, uint16_t head, uint32_t written);
/* The same for several that the driver must see at once: the i-th from 0 on, then `n` of them. */
void vq_put(struct vq *q, uint16_t i, uint16_t head, uint32_t written);
void vq_publish(struct vq *q, uint16_t n);
/* Asks to be kicked for what comes next; true when something is there already. */
bool vq_rearm(struct vq *q);
/* The same for what comes after `index` chains were offered, taken or not. */
bool vq_rearm_at(struct vq *q, uint16_t index);
/* True when what was pushed since the last call must be told to the driver. */
bool vq_should_notify(struct vq *q);
/* The driver's index of chains offered so far; moves when it offers more. */
uint16_t vq_offered(const struct vq *q);

/* Adds a line for people: the indices here and in guest memory, and which side has to act. */
void vq_inspect(const struct vq *q, struct report *r);

/* The saved fields. Restoring checks them like the driver's own. */
void vq_save(const struct vq *q, struct wire *w);
int vq_restore(struct vq *q, struct wire *r, struct err *e);

/* Copies between a buffer and the bytes from `offset` on of `n` iovecs; returns the bytes copied,
 * fewer than `len` when the iovecs end. */
size_t iov_read(const struct iovec *iov, unsigned n, size_t offset, void *out, size_t len);
size_t iov_write(const struct iovec *iov, unsigned n, size_t offset, const void *data, size_t len);
/* Zeroes `len` bytes from `offset` on. */
void iov_zero(const struct iovec *iov, unsigned n, size_t offset, size_t len);
/* The part [offset, offset + len) of `iov` as iovecs in `out` (room for n); returns how many. */
unsigned iov_slice(const struct iovec *iov, unsigned n, size_t offset, size_t len,
		   struct iovec *out);

#endif
