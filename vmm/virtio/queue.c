// SPDX-License-Identifier: Apache-2.0
#include "vmm/virtio/queue.h"

#include <errno.h>
#include <linux/virtio_ring.h>
#include <string.h>

/* For fields that the driver may change at any moment: the compiler may not repeat a load. */
#define LOAD(p)	    __atomic_load_n((p), __ATOMIC_RELAXED)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

static int fault(struct vq *q, const char *what)
{
	q->fault = what;
	return -EPROTO;
}

void vq_reset(struct vq *q)
{
	*q = (struct vq){.mem = q->mem,
			 .size_max = q->size_max,
			 .size = q->size_max,
			 .signalled_valid = true};
}

/* Maps one part of the queue. Returns NULL unless it is aligned and entirely in RAM. */
static void *map_part(const struct vq *q, uint64_t addr, uint64_t len, uint64_t align)
{
	return addr % align ? NULL : gm_ptr(q->mem, addr, len);
}

int vq_enable(struct vq *q)
{
	uint64_t n = q->size;

	if (!n || n > q->size_max || (n & (n - 1)))
		return fault(q, "queue size is not a power of two, or too large");
	q->desc = map_part(q, q->desc_addr, n * sizeof(struct vring_desc), 16);
	q->avail = map_part(q, q->avail_addr, sizeof(struct vring_avail) + (n + 1) * 2, 2);
	q->used = map_part(q, q->used_addr,
			   sizeof(struct vring_used) + n * sizeof(struct vring_used_elem) + 2, 4);
	if (!q->desc || !q->avail || !q->used)
		return fault(q, "queue is misaligned or outside of memory");
	q->ready = true;
	return 0;
}

static struct vring_desc load_desc(const struct vring_desc *p)
{
	return (struct vring_desc){
		.addr = LOAD(&p->addr),
		.len = LOAD(&p->len),
		.flags = LOAD(&p->flags),
		.next = LOAD(&p->next),
	};
}

static int add_buffer(struct vq *q, struct vq_chain *c, const struct vring_desc *d)
{
	bool in = d->flags & VRING_DESC_F_WRITE;
	void *p;

	if (!in && c->nin)
		return fault(q, "readable buffer after a writable one");
	if (!d->len)
		return 0;
	p = gm_ptr(q->mem, d->addr, d->len);
	if (!p)
		return fault(q, "buffer outside of memory");
	c->iov[c->nout + c->nin] = (struct iovec){p, d->len};
	if (in) {
		c->nin++;
		c->in_bytes += d->len;
	} else {
		c->nout++;
		c->out_bytes += d->len;
	}
	return 0;
}

/* The descriptors of a chain: the queue's own table or an indirect one. */
struct desc_table {
	const struct vring_desc *desc;
	uint32_t n;
	bool is_indirect;
};

static int enter_indirect(struct vq *q, struct desc_table *t, const struct vring_desc *d)
{
	if (!q->indirect || t->is_indirect)
		return fault(q, "indirect table that was not negotiated or is nested");
	if (d->flags & VRING_DESC_F_NEXT)
		return fault(q, "descriptor that is indirect and has a next one");
	if (!d->len || d->len % sizeof(struct vring_desc) ||
	    d->len > VQ_SIZE_MAX * sizeof(struct vring_desc))
		return fault(q, "indirect table of a wrong length");
	t->desc = map_part(q, d->addr, d->len, 8);
	if (!t->desc)
		return fault(q, "indirect table misaligned or outside of memory");
	t->n = d->len / sizeof(struct vring_desc);
	t->is_indirect = true;
	return 0;
}

static int walk(struct vq *q, struct vq_chain *c)
{
	struct desc_table t = {.desc = q->desc, .n = q->size};
	uint32_t at = c->head;

	/* Limits the chain to the size of a queue, so that a loop ends. */
	for (unsigned left = VQ_SIZE_MAX; left; left--) {
		if (at >= t.n)
			return fault(q, "descriptor index out of range");
		struct vring_desc d = load_desc(&t.desc[at]);
		int rc;

		if (d.flags & VRING_DESC_F_INDIRECT) {
			rc = enter_indirect(q, &t, &d);
			if (rc < 0)
				return rc;
			at = 0;
			continue;
		}
		rc = add_buffer(q, c, &d);
		if (rc < 0)
			return rc;
		if (!(d.flags & VRING_DESC_F_NEXT))
			return 0;
		at = d.next;
	}
	return fault(q, "descriptor chain too long or looped");
}

uint16_t vq_offered(const struct vq *q)
{
	/* The driver writes idx last: read it before any slot. */
	return __atomic_load_n(&q->avail->idx, __ATOMIC_ACQUIRE);
}

int vq_pop(struct vq *q, struct vq_chain *c)
{
	uint16_t pending;
	int rc;

	if (!q->ready)
		return 0;
	pending = (uint16_t)(vq_offered(q) - q->next_avail);
	if (!pending)
		return 0;
	if (pending > q->size)
		return fault(q, "available index ahead by more than the queue's size");
	c->head = LOAD(&q->avail->ring[q->next_avail & (q->size - 1)]);
	c->nout = c->nin = 0;
	c->out_bytes = c->in_bytes = 0;
	rc = walk(q, c);
	if (rc < 0)
		return rc;
	q->next_avail++;
	return 1;
}

void vq_unpop(struct vq *q)
{
	q->next_avail--;
}

void vq_put(struct vq *q, uint16_t i, uint16_t head, uint32_t written)
{
	struct vring_used_elem *slot = &q->used->ring[(uint16_t)(q->next_used + i) & (q->size - 1)];

	STORE(&slot->id, head);
	STORE(&slot->len, written);
}

void vq_publish(struct vq *q, uint16_t n)
{
	q->next_used += n;
	/* The driver reads the slots after it has read the index. */
	__atomic_store_n(&q->used->idx, q->next_used, __ATOMIC_RELEASE);
}

void vq_push(struct vq *q, uint16_t head, uint32_t written)
{
	vq_put(q, 0, head, written);
	vq_publish(q, 1);
}

bool vq_enable_notification_at(struct vq *q, uint16_t index)
{
	if (!q->ready)
		return false;
	if (q->event_idx) {
		STORE((uint16_t *)&q->used->ring[q->size], index);
		/*
		 * Either the driver sees the new avail_event, or the load below sees the chain it
		 * added.
		 */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	}
	return vq_offered(q) != index;
}

bool vq_enable_notification(struct vq *q)
{
	return vq_enable_notification_at(q, q->next_avail);
}

bool vq_should_notify(struct vq *q)
{
	uint16_t event, added = (uint16_t)(q->next_used - q->signalled_used);
	bool signalled = q->signalled_valid;

	if (!q->ready || (signalled && !added))
		return false;
	q->signalled_used = q->next_used;
	q->signalled_valid = true;
	/* Publish the used index before reading the driver's event index (2.7.7.2, 2.7.10). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!q->event_idx)
		return !(LOAD(&q->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
	event = LOAD(&q->avail->ring[q->size]);
	return !signalled || (uint16_t)(q->next_used - event - 1) < added;
}

void vq_inspect(const struct vq *q, struct report *r)
{
	uint16_t offered, used, used_event, avail_event, not_taken;

	if (!q->ready) {
		report_add(r, "not ready, size %u\n", q->size);
		return;
	}
	offered = vq_offered(q);
	used = LOAD(&q->used->idx);
	used_event = LOAD(&q->avail->ring[q->size]);
	avail_event = LOAD((uint16_t *)&q->used->ring[q->size]);
	not_taken = (uint16_t)(offered - q->next_avail);
	report_add(r, "size %u, avail %u, taken %u (%u wait%s), used %u", q->size, offered,
		   q->next_avail, not_taken, not_taken > q->size ? ": more than there can be" : "",
		   q->next_used);
	if (used != q->next_used)
		report_add(r, " (in memory %u)", used);
	report_add(r, ", %u in flight, signalled up to %u%s",
		   (uint16_t)(q->next_avail - q->next_used), q->signalled_used,
		   q->signalled_valid ? "" : " (not since it resumed)");
	if (q->event_idx)
		report_add(r, "; interrupt wanted after %u, kick after %u\n", used_event,
			   avail_event);
	else
		report_add(r, "; flags %x\n", LOAD(&q->avail->flags));
}

void vq_save(const struct vq *q, struct wire *w)
{
	wire_put_u16(w, q->size);
	wire_put_u8(w, q->ready);
	wire_put_u64(w, q->desc_addr);
	wire_put_u64(w, q->avail_addr);
	wire_put_u64(w, q->used_addr);
	wire_put_u16(w, q->next_avail);
	wire_put_u16(w, q->next_used);
}

int vq_restore(struct vq *q, struct wire *r, struct err *e)
{
	bool ready;

	vq_reset(q);
	q->size = wire_get_u16(r);
	ready = wire_get_u8(r);
	q->desc_addr = wire_get_u64(r);
	q->avail_addr = wire_get_u64(r);
	q->used_addr = wire_get_u64(r);
	q->next_avail = wire_get_u16(r);
	q->next_used = wire_get_u16(r);
	if (r->bad)
		return err_say(e, EINVAL, "the queue's fields end early");
	if (ready && vq_enable(q) < 0)
		return err_say(e, EINVAL, "%s", q->fault);
	if ((uint16_t)(q->next_avail - q->next_used) > q->size_max)
		return err_say(e, EINVAL, "more chains in use than the queue has entries");
	return 0;
}

/* Skips `offset` bytes. Returns the first iovec with bytes left; *offset is then within it. */
static unsigned skip(const struct iovec *iov, unsigned n, size_t *offset)
{
	unsigned i = 0;

	while (i < n && *offset >= iov[i].iov_len)
		*offset -= iov[i++].iov_len;
	return i;
}

unsigned iov_slice(const struct iovec *iov, unsigned n, size_t offset, size_t len,
		   struct iovec *out)
{
	unsigned used = 0;

	for (unsigned i = skip(iov, n, &offset); i < n && len; i++, offset = 0) {
		size_t take = iov[i].iov_len - offset;

		if (take > len)
			take = len;
		out[used++] = (struct iovec){(uint8_t *)iov[i].iov_base + offset, take};
		len -= take;
	}
	return used;
}

/*
 * Walks bytes [offset, offset + len) of the iovecs. Copies them to `out`, or `data` into them, or
 * zeroes them when both are NULL. Returns their number.
 */
static size_t iov_walk(const struct iovec *iov, unsigned n, size_t offset, void *out,
		       const void *data, size_t len)
{
	size_t done = 0;

	for (unsigned i = skip(iov, n, &offset); i < n && done < len; i++, offset = 0) {
		uint8_t *p = (uint8_t *)iov[i].iov_base + offset;
		size_t take = iov[i].iov_len - offset;

		if (take > len - done)
			take = len - done;
		if (out)
			memcpy((uint8_t *)out + done, p, take);
		else if (data)
			memcpy(p, (const uint8_t *)data + done, take);
		else
			memset(p, 0, take);
		done += take;
	}
	return done;
}

size_t iov_read(const struct iovec *iov, unsigned n, size_t offset, void *out, size_t len)
{
	return iov_walk(iov, n, offset, out, NULL, len);
}

size_t iov_write(const struct iovec *iov, unsigned n, size_t offset, const void *data, size_t len)
{
	return iov_walk(iov, n, offset, NULL, data, len);
}

void iov_zero(const struct iovec *iov, unsigned n, size_t offset, size_t len)
{
	iov_walk(iov, n, offset, NULL, NULL, len);
}
