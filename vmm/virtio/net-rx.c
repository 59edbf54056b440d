// SPDX-License-Identifier: Apache-2.0
/* Frames to the guest. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "vmm/virtio/net-internal.h"

/* --- The window --- */

void net_rx_return(struct net *n)
{
	for (unsigned i = 0; i < n->window.nchains; i++)
		vq_unpop(&n->dev.vq[NET_QUEUE_RX]);
	net_rx_forget(n);
}

void net_rx_forget(struct net *n)
{
	n->window.nchains = n->window.niov = 0;
	n->window.bytes = 0;
	n->window.full = false;
}

static bool large_frames(const struct net *n)
{
	return net_has(n, NET_F(GUEST_TSO4) | NET_F(GUEST_TSO6));
}

static size_t frame_max(const struct net *n)
{
	return NET_HDR_BYTES + (large_frames(n) ? NET_LARGE_BYTES : NET_FRAME_BYTES);
}

/* True when the window has all buffers of the driver: a frame longer than all of them is lost. */
static bool has_all(const struct net *n)
{
	const struct vq *q = &n->dev.vq[NET_QUEUE_RX];

	return (uint16_t)(vq_offered(q) - q->next_used) >= q->size;
}

/*
 * True when any frame fits. Without MRG_RXBUF a frame has one chain to itself, of whatever length.
 */
static bool has_room(const struct net *n)
{
	const struct net_window *w = &n->window;

	return w->nchains &&
	       (!net_has(n, NET_F(MRG_RXBUF)) || w->bytes >= frame_max(n) || w->full || has_all(n));
}

static void append(struct net_window *w, const struct vq_chain *c)
{
	memcpy(w->iov + w->niov, c->iov, c->nin * sizeof(*c->iov));
	w->chain[w->nchains].head = c->head;
	w->chain[w->nchains].niov = c->nin;
	w->chain[w->nchains].bytes = c->in_bytes;
	w->nchains++;
	w->niov += c->nin;
	w->bytes += c->in_bytes;
}

/* Adds the next chain of buffers to the window, or marks the window as full. Returns false when the
 * driver offers no chain or an invalid one. */
static bool take_chain(struct net *n)
{
	struct vio_dev *d = &n->dev;
	struct net_window *w = &n->window;

	if (!vio_pop(d, NET_QUEUE_RX, &n->chain))
		return false;
	if (n->chain.in_bytes < NET_HDR_BYTES || n->chain.nout) {
		vio_guest_fault(d, "receive buffer without room for a frame's header");
		return false;
	}
	if (w->niov + n->chain.nin > VQ_SIZE_MAX) {
		vq_unpop(&d->vq[NET_QUEUE_RX]);
		w->full = true;
	} else {
		append(w, &n->chain);
	}
	return true;
}

/* Takes buffers until any frame fits. Returns false when the driver has to provide more first. */
static bool gather(struct net *n)
{
	struct vio_dev *d = &n->dev;

	do {
		while (d->active && !has_room(n) && take_chain(n))
			;
	} while (d->active && !has_room(n) && vq_enable_notification(&d->vq[NET_QUEUE_RX]));
	return d->active && has_room(n);
}

static unsigned chains_for(const struct net_window *w, size_t bytes)
{
	unsigned k = 0;

	for (size_t have = 0; have < bytes; k++)
		have += w->chain[k].bytes;
	return k;
}

/* Removes the first `k` chains from the window. */
static void advance(struct net_window *w, unsigned k)
{
	unsigned niov = 0;

	for (unsigned i = 0; i < k; i++) {
		niov += w->chain[i].niov;
		w->bytes -= w->chain[i].bytes;
	}
	w->niov -= niov;
	w->nchains -= k;
	w->full = false;
	memmove(w->iov, w->iov + niov, w->niov * sizeof(w->iov[0]));
	memmove(w->chain, w->chain + k, w->nchains * sizeof(w->chain[0]));
}

/* Returns the first `bytes` of the window to the guest, after writing the header there. */
static void give(struct net *n, struct virtio_net_hdr_v1 *hdr, size_t bytes)
{
	struct vq *q = &n->dev.vq[NET_QUEUE_RX];
	struct net_window *w = &n->window;
	unsigned k = chains_for(w, bytes);
	size_t left = bytes;

	hdr->num_buffers = (uint16_t)k;
	iov_write(w->iov, w->niov, 0, hdr, NET_HDR_BYTES);
	for (unsigned i = 0; i < k; i++) {
		size_t part = left < w->chain[i].bytes ? left : w->chain[i].bytes;

		vq_put(q, (uint16_t)i, w->chain[i].head, (uint32_t)part);
		left -= part;
	}
	vq_publish(q, (uint16_t)k);
	advance(w, k);
	n->stats.rx_frames++;
	n->stats.rx_bytes += bytes - NET_HDR_BYTES;
}

/* --- Frames --- */

/*
 * True when the header uses only negotiated features (5.1.6.4.1). Clears flags that the driver does
 * not expect.
 */
static bool header_fits(const struct net *n, struct virtio_net_hdr_v1 *hdr)
{
	uint64_t needs = 0;

	if (hdr->gso_type & VIRTIO_NET_HDR_GSO_ECN)
		needs |= NET_F(GUEST_ECN);
	switch (hdr->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_NONE:
		break;
	case VIRTIO_NET_HDR_GSO_TCPV4:
		needs |= NET_F(GUEST_TSO4);
		break;
	case VIRTIO_NET_HDR_GSO_TCPV6:
		needs |= NET_F(GUEST_TSO6);
		break;
	default:
		return false;
	}
	if (hdr->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		needs |= NET_F(GUEST_CSUM);
	hdr->flags &= net_has(n, NET_F(GUEST_CSUM))
			      ? VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID
			      : 0;
	return (n->dev.driver_features & needs) == needs;
}

static ssize_t read_tap(struct net *n, struct virtio_net_hdr_v1 *hdr, size_t room)
{
	struct iovec iov[VQ_SIZE_MAX + 2] = {{hdr, NET_HDR_BYTES}};
	uint8_t beyond; /* follows the buffers; gets a byte if the frame is too long for them */
	unsigned count;

	count = 1 + iov_slice(n->window.iov, n->window.niov, NET_HDR_BYTES, room - NET_HDR_BYTES,
			      iov + 1);
	iov[count++] = (struct iovec){&beyond, 1};
	return readv(n->tap_fd, iov, (int)count);
}

/* Delivers a frame. Returns false when the tap has none. */
static bool take_frame(struct net *n)
{
	size_t room = n->window.bytes < frame_max(n) ? n->window.bytes : frame_max(n);
	struct virtio_net_hdr_v1 hdr = {0};
	ssize_t got = read_tap(n, &hdr, room);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got <= 0) {
		net_lose_link(n);
		return false;
	}
	if ((size_t)got > room || (size_t)got < NET_HDR_BYTES + NET_ETH_BYTES ||
	    !header_fits(n, &hdr))
		n->stats.rx_dropped++;
	else
		give(n, &hdr, (size_t)got);
	return true;
}

static void give_answer(struct net *n)
{
	struct virtio_net_hdr_v1 hdr = {0};
	size_t bytes = NET_HDR_BYTES + n->answer_len;

	if (bytes <= n->window.bytes) {
		iov_write(n->window.iov, n->window.niov, NET_HDR_BYTES, n->answer, n->answer_len);
		give(n, &hdr, bytes);
	} else {
		n->stats.rx_dropped++;
	}
	n->answer_len = 0;
}

void net_rx_pump(struct net *n)
{
	struct vio_dev *d = &n->dev;
	uint16_t before = d->vq[NET_QUEUE_RX].next_used;

	n->rx_no_buffers = false;
	for (unsigned left = NET_TURN; left && d->active; left--) {
		if (!n->answer_len && !net_link(n))
			break;
		if (!gather(n)) {
			n->rx_no_buffers = true;
			break;
		}
		if (n->answer_len)
			give_answer(n);
		else if (!take_frame(n))
			break;
	}
	/* vio_notify would interrupt a VM that was just restored even if nothing was delivered. */
	if (d->vq[NET_QUEUE_RX].next_used != before)
		vio_notify(d, NET_QUEUE_RX);
}
