// SPDX-License-Identifier: Apache-2.0
/* Frames from the guest. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/log.h"
#include "base/num.h"
#include "vmm/virtio/net-internal.h"

#define TURN_BYTES (1u << 20)

/*
 * Minimum segment size. Linux makes no smaller ones (TCP_MIN_SND_MSS); they would burden the host.
 */
#define SEGMENT_MIN 48

struct frame {
	size_t bytes; /* of the whole frame, header included */
	/*
	 * The copied part: all of a usual frame, and the headers of a larger one. The rest goes
	 * from guest memory straight to the tap.
	 */
	size_t head_bytes;
	struct {
		struct virtio_net_hdr_v1 hdr;
		uint8_t eth[NET_FRAME_BYTES];
	} head;
};

/* True when the negotiated features allow this kind of offload (5.1.6.2). */
static bool gso_allowed(const struct net *n, const struct virtio_net_hdr_v1 *hdr)
{
	if (hdr->gso_type == VIRTIO_NET_HDR_GSO_NONE)
		return true;
	if (hdr->gso_type & VIRTIO_NET_HDR_GSO_ECN && !net_has(n, NET_F(HOST_ECN)))
		return false;
	if (!(hdr->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || hdr->gso_size < SEGMENT_MIN)
		return false;
	switch (hdr->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_TCPV4:
		return net_has(n, NET_F(HOST_TSO4));
	case VIRTIO_NET_HDR_GSO_TCPV6:
		return net_has(n, NET_F(HOST_TSO6));
	default:
		return false;
	}
}

static bool csum_allowed(const struct net *n, const struct virtio_net_hdr_v1 *hdr, size_t len)
{
	size_t start = hdr->csum_start, offset = hdr->csum_offset;

	if (!(hdr->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
		return true;
	return net_has(n, NET_F(CSUM)) && start >= NET_ETH_BYTES && start + offset + 2 <= len;
}

/* True when the frame may be sent. The header then contains only checked values. */
static bool check_header(const struct net *n, struct frame *f)
{
	size_t len = f->bytes - NET_HDR_BYTES;
	struct virtio_net_hdr_v1 *hdr = &f->head.hdr;

	if (hdr->flags & ~VIRTIO_NET_HDR_F_NEEDS_CSUM || !gso_allowed(n, hdr) ||
	    !csum_allowed(n, hdr, len))
		return false;
	if (len < NET_ETH_BYTES || len > (hdr->gso_type ? NET_LARGE_BYTES : NET_FRAME_BYTES))
		return false;
	hdr->hdr_len = (uint16_t)min_u64(hdr->hdr_len, len); /* only a hint */
	if (!(hdr->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
		hdr->csum_start = hdr->csum_offset = 0;
	hdr->num_buffers = 0;
	return true;
}

static bool check_source(struct net *n, const uint8_t *eth)
{
	static const uint8_t mac[NET_MAC_BYTES] = NET_GUEST_MAC;

	if (!memcmp(eth + NET_MAC_BYTES, mac, NET_MAC_BYTES))
		return true;
	if (!n->spoof_logged)
		log_warn("network: the guest sends frames from a MAC address that is not its own; "
			 "they are dropped (logged once)");
	n->spoof_logged = true;
	return false;
}

/* Answers frames that are for the device itself. Returns false for others. */
static bool answered(struct net *n, const struct frame *f)
{
	const uint8_t *eth = f->head.eth;
	size_t len = f->head_bytes - NET_HDR_BYTES, answer;

	if (net_is_dhcp(eth, len)) {
		answer = net_dhcp_answer(eth, len, n->answer);
		if (answer)
			n->answer_len = answer;
		return true;
	}
	if (net_is_solicitation(eth, len)) {
		if (n->ipv6)
			net_queue_advertisement(n);
		return true;
	}
	return false;
}

/* Returns false when the tap has no room now. */
static bool write_tap(struct net *n, const struct frame *f)
{
	struct iovec iov[VQ_SIZE_MAX + 1] = {{(void *)&f->head, f->head_bytes}};
	unsigned count = 1 + iov_slice(vq_out(&n->chain), n->chain.nout, f->head_bytes,
				       f->bytes - f->head_bytes, iov + 1);

	if (writev(n->tap_fd, iov, (int)count) >= 0) {
		n->stats.tx_frames++;
		n->stats.tx_bytes += f->bytes - NET_HDR_BYTES;
		return true;
	}
	if (errno == EAGAIN)
		return false;
	n->stats.tx_dropped++; /* the host's kernel rejected the frame, or the tap is down */
	return true;
}

/* Sends the frame in n->chain. Returns false when it has to wait. */
static bool send_frame(struct net *n)
{
	struct frame f;

	f.bytes = n->chain.out_bytes;
	f.head_bytes = iov_read(vq_out(&n->chain), n->chain.nout, 0, &f.head, sizeof(f.head));
	if (!check_header(n, &f) || !check_source(n, f.head.eth)) {
		n->stats.tx_dropped++;
		return true;
	}
	if (answered(n, &f))
		return true;
	if (!net_link(n)) {
		n->stats.tx_dropped++;
		return true;
	}
	return write_tap(n, &f);
}

/* Takes and sends a frame. Returns false when the driver has none or the tap has no room. */
static bool take_frame(struct net *n)
{
	struct vio_dev *d = &n->dev;
	struct vq *q = &d->vq[NET_QUEUE_TX];

	if (!vio_pop(d, NET_QUEUE_TX, &n->chain))
		return false;
	if (n->chain.nin || n->chain.out_bytes < NET_HDR_BYTES) {
		vio_guest_fault(d, "frame to send without a header, or with a writable buffer");
		return false;
	}
	if (!send_frame(n)) {
		vq_unpop(q);
		n->tx_full = true;
		return false;
	}
	vq_push(q, n->chain.head, 0);
	return true;
}

void net_tx_pump(struct net *n)
{
	struct vio_dev *d = &n->dev;
	uint64_t end = n->stats.tx_bytes + TURN_BYTES;
	uint16_t before = d->vq[NET_QUEUE_TX].next_used;
	unsigned left = NET_TURN;

	if (__atomic_load_n(&n->held, __ATOMIC_ACQUIRE))
		return;
	n->tx_full = false;
	do {
		while (left && n->stats.tx_bytes < end && take_frame(n))
			left--;
	} while (left && n->stats.tx_bytes < end && d->active && !n->tx_full &&
		 vq_enable_notification(&d->vq[NET_QUEUE_TX]));
	if (d->vq[NET_QUEUE_TX].next_used != before)
		vio_notify(d, NET_QUEUE_TX);
	if (d->active && !n->tx_full && (!left || n->stats.tx_bytes >= end))
		vio_rekick(d, NET_QUEUE_TX);
}
