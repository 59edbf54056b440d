// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of the network device: registers, tap and life (net.c), frames to the guest (net-rx.c)
 * and from it (net-tx.c), and what it answers in the place of a network: leases (net-dhcp.c) and
 * router advertisements (net-ra.c).
 *
 * A frame passes between guest buffers and tap in one call, behind a header of 12 bytes that both
 * sides know (virtio v1.2, 5.1.6). Headers are copied before they are looked at, and what was
 * looked at is what is passed on.
 */
#ifndef RAMET_VMM_VIRTIO_NET_INTERNAL_H
#define RAMET_VMM_VIRTIO_NET_INTERNAL_H

#include "proto/net.h"
#include "vmm/virtio/device.h"

#define NET_F_CSUM	 (1ull << 0)
#define NET_F_GUEST_CSUM (1ull << 1)
#define NET_F_MTU	 (1ull << 3)
#define NET_F_MAC	 (1ull << 5)
#define NET_F_GUEST_TSO4 (1ull << 7)
#define NET_F_GUEST_TSO6 (1ull << 8)
#define NET_F_GUEST_ECN	 (1ull << 9)
#define NET_F_HOST_TSO4	 (1ull << 11)
#define NET_F_HOST_TSO6	 (1ull << 12)
#define NET_F_HOST_ECN	 (1ull << 13)
#define NET_F_MRG_RXBUF	 (1ull << 15)
#define NET_F_STATUS	 (1ull << 16)

enum { NET_QUEUE_RX, NET_QUEUE_TX, NET_QUEUES };

#define NET_QUEUE_SIZE 256
#define NET_TURN       64 /* frames each way in one turn of the loop */

#define NET_MAC_BYTES	6
#define NET_ETH_BYTES	14
#define NET_FRAME_BYTES (NET_ETH_BYTES + 4 + NET_MTU) /* with a VLAN tag */
#define NET_LARGE_BYTES (NET_ETH_BYTES + 4 + 65535)   /* that segmentation makes small */

/* The header before each frame, little-endian: u8 flags, u8 gso_type, u16 hdr_len, u16 gso_size,
 * u16 csum_start, u16 csum_offset, u16 num_buffers. */
#define NET_HDR_BYTES  12
#define HDR_NEEDS_CSUM 1u
#define HDR_DATA_VALID 2u
enum { GSO_NONE = 0, GSO_TCPV4 = 1, GSO_TCPV6 = 4, GSO_ECN = 0x80 };

#define NET_ANSWER_BYTES 512 /* the longest frame that the device makes itself */

/* Receive buffers that the driver offered, taken ahead of the frames that will fill them, in the
 * order of the queue. */
struct net_window {
	unsigned nchains, niov;
	uint64_t bytes;
	bool full; /* the next one did not fit */
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
	bool gone;  /* the tap is of no more use */
	bool ipv6;
	struct loop_watch *watch; /* of the tap */
	uint32_t watched;	  /* events */
	bool rx_starved;	  /* no buffers for frames: the driver's kick is awaited */
	bool tx_full;		  /* the tap takes no more: the frame waits in its queue */
	bool held;		  /* nothing is taken from the guest; atomic */
	bool advertised;	  /* the guest was told of an IPv6 router */
	bool told_link;		  /* the link's state as the driver was told of it */
	bool spoof_logged;
	struct loop_timer advertise;
	struct vio_net_stats stats;
	struct vq_chain chain;
	struct net_window window;
	size_t answer_len; /* 0: none waits for a buffer */
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

/* The tap failed in a way that will not pass: the link is down from now on. */
void net_lose_link(struct net *n);
/* An answer is to go to the guest: takes the place of one that still waits. */
void net_queue_advertisement(struct net *n);

/* --- net-rx.c --- */

/* Passes on what the tap has and the guest has buffers for. */
void net_rx_pump(struct net *n);
/* Gives buffers back that were taken ahead. */
void net_rx_return(struct net *n);
/* The same when the queue they were of is gone. */
void net_rx_forget(struct net *n);

/* --- net-tx.c --- */

void net_tx_pump(struct net *n);

/* --- net-dhcp.c (RFC 2131) and net-ra.c (RFC 4861): frames without the header --- */

/* Whether a frame of the guest's is for the device itself. */
bool net_is_dhcp(const uint8_t *frame, size_t len);
bool net_is_solicitation(const uint8_t *frame, size_t len);
/* What to answer to a frame that is; its length, or 0 for nothing. */
size_t net_dhcp_answer(const uint8_t *frame, size_t len, uint8_t out[NET_ANSWER_BYTES]);
/* Tells all on the link of a router, or with a lifetime of 0 that there is none any more. */
size_t net_advertisement(uint16_t lifetime_s, uint8_t out[NET_ANSWER_BYTES]);

/* Internet checksum (RFC 1071) in parts: sums are added, the last is folded. */
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
