// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of the network device: registers, tap and lifecycle (net.c), frames to the guest
 * (net-rx.c) and from it (net-tx.c), and the answers it gives in place of a network: leases
 * (net-dhcp.c) and router advertisements (net-ra.c).
 *
 * A frame moves between guest buffers and tap in one call, behind a header of 12 bytes that both
 * sides know (virtio v1.2, 5.1.6). Headers are copied before they are checked, and the checked copy
 * is passed on.
 */
#ifndef RAMET_VMM_VIRTIO_NET_INTERNAL_H
#define RAMET_VMM_VIRTIO_NET_INTERNAL_H

#include <linux/virtio_net.h>

#include "proto/net.h"
#include "vmm/virtio/device.h"

#define NET_F(name) VIO_FEATURE(VIRTIO_NET_F_##name)

enum { NET_QUEUE_RX, NET_QUEUE_TX, NET_QUEUES };

#define NET_QUEUE_SIZE 256
#define NET_TURN       64 /* frames in each direction per turn of the loop */

#define NET_MAC_BYTES	6
#define NET_ETH_BYTES	14
#define NET_FRAME_BYTES (NET_ETH_BYTES + 4 + NET_MTU) /* with a VLAN tag */
#define NET_LARGE_BYTES (NET_ETH_BYTES + 4 + 65535)   /* split by segmentation offload */

/* The header before each frame: struct virtio_net_hdr_v1. */
#define NET_HDR_BYTES sizeof(struct virtio_net_hdr_v1)

#define NET_ANSWER_BYTES 512 /* the longest frame that the device itself makes */

/*
 * Receive buffers that were taken from the driver before the frames that will fill them, in the
 * order of the queue.
 */
struct net_window {
	unsigned nchains, niov;
	uint64_t bytes;
	bool full; /* the next buffer did not fit */
	struct {
		uint16_t head;
		unsigned niov;
		uint64_t bytes;
	} chain[NET_QUEUE_SIZE];
	struct iovec iov[VQ_SIZE_MAX];
};

struct net {
	struct vio_dev dev;
	int tap_fd; /* -1: no link */
	bool gone;  /* the tap has failed for good */
	bool ipv6;
	struct event_watch *watch; /* of the tap */
	uint32_t watched;	   /* events that the watch is set to */
	bool rx_no_buffers;	   /* no buffers for frames: wait for the driver's kick */
	bool tx_full;		   /* the tap is full: the next frame waits in its queue */
	bool held;		   /* frames of the guest are not taken; atomic */
	bool advertised;	   /* a router advertisement for IPv6 was sent */
	bool notified_link;	   /* the link state that the driver knows */
	bool spoof_logged;
	struct event_timer advertise;
	struct vio_net_stats stats;
	struct vq_chain chain;
	struct net_window window;
	size_t answer_len; /* 0: no answer waits for a buffer */
	uint8_t answer[NET_ANSWER_BYTES];
};

static inline bool net_has(const struct net *n, uint64_t feature)
{
	return n->dev.driver_features & feature;
}

static inline bool net_link(const struct net *n)
{
	return n->tap_fd >= 0 && !n->gone;
}

/* --- net.c --- */

/* Call it when the tap has failed for good: the link is down from now on. */
void net_lose_link(struct net *n);
/* Queues an advertisement for the guest. Replaces an answer that still waits. */
void net_queue_advertisement(struct net *n);

/* --- net-rx.c --- */

/* Delivers the tap's frames as long as the guest has buffers for them. */
void net_rx_pump(struct net *n);
/* Puts buffers that were taken ahead back into the driver's queue. */
void net_rx_return(struct net *n);
/* Forgets buffers that were taken ahead from a queue that is gone. */
void net_rx_forget(struct net *n);

/* --- net-tx.c --- */

void net_tx_pump(struct net *n);

/* --- net-dhcp.c (RFC 2131) and net-ra.c (RFC 4861): frames without the header --- */

/* True for a frame of the guest that the device itself has to answer. */
bool net_is_dhcp(const uint8_t *frame, size_t len);
bool net_is_solicitation(const uint8_t *frame, size_t len);
/* Makes the answer to such a frame. Returns its length, or 0 for no answer. */
size_t net_dhcp_answer(const uint8_t *frame, size_t len, uint8_t out[NET_ANSWER_BYTES]);
/*
 * Makes an advertisement of a router to all on the link. A lifetime of 0 says that it is gone.
 * Returns its length.
 */
size_t net_advertisement(uint16_t lifetime_s, uint8_t out[NET_ANSWER_BYTES]);

/* Internet checksum (RFC 1071): add the net_sum of all parts, then fold the total. */
uint32_t net_sum(const uint8_t *data, size_t len);
uint16_t net_sum_fold(uint32_t sum);

static inline uint16_t net_get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static inline void net_put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

#endif
