// SPDX-License-Identifier: Apache-2.0
/* The network device, with a socket pair in place of the tap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "vmm/virtio/net-internal.h"

#define RX NET_QUEUE_RX
#define TX NET_QUEUE_TX

#define MRG    NET_F(MRG_RXBUF)
#define TSO_RX (NET_F(GUEST_CSUM) | NET_F(GUEST_TSO4) | NET_F(GUEST_TSO6) | NET_F(GUEST_ECN))
#define TSO_TX (NET_F(CSUM) | NET_F(HOST_TSO4) | NET_F(HOST_TSO6) | NET_F(HOST_ECN))

static const uint8_t guest_mac[6] = NET_GUEST_MAC, gateway_mac[6] = NET_GATEWAY_MAC;

struct world {
	struct drv v;
	int tap; /* the host's end; -1: no tap */
	bool ipv6;
	uint64_t tx, rx; /* guest memory for buffers */
};

static void make(struct world *w, int fds[2])
{
	struct vio_dev *dev;

	drv_init(&w->v, 4 << 20);
	assert_int_equal(vio_net_new(&dev, &w->v.mem, w->v.loop, fds[1], w->ipv6, NULL), 0);
	drv_attach(&w->v, dev);
	w->tap = fds[0];
	w->tx = drv_alloc(&w->v, 1 << 18, 64);
	w->rx = drv_alloc(&w->v, 1 << 20, 64);
}

static void start_with(struct world *w, uint64_t features, uint16_t queue_size)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	make(w, fds);
	drv_start(&w->v, features, queue_size);
}

static void start(struct world *w, uint64_t features)
{
	*w = (struct world){0};
	start_with(w, features, 64);
}

static void stop(struct world *w)
{
	drv_fini(&w->v);
	if (w->tap >= 0)
		close(w->tap);
}

static struct vio_net_stats stats(struct world *w)
{
	return vio_net_stats(w->v.dev);
}

/* --- The guest sends --- */

/* Makes a header of zeros, followed by an Ethernet frame of `len` bytes that contains a pattern. */
static void make_frame(uint8_t *f, size_t len, const uint8_t *source)
{
	memset(f, 0, NET_HDR_BYTES);
	f += NET_HDR_BYTES;
	for (size_t i = 0; i < len; i++)
		f[i] = (uint8_t)(i * 7 + 1);
	memcpy(f, gateway_mac, 6);
	memcpy(f + 6, source, 6);
	net_put16(f + 12, 0x88b5); /* type for local experiments (IEEE 802) */
}

static void send_raw(struct world *w, const uint8_t *f, size_t len, size_t first)
{
	struct drv_buf bufs[] = {{w->tx, (uint32_t)first, false},
				 {w->tx + 131072, (uint32_t)(len - first), false}};
	uint16_t head;
	uint32_t got;

	memcpy(drv_ptr(&w->v, w->tx), f, first);
	memcpy(drv_ptr(&w->v, w->tx + 131072), f + first, len - first);
	drv_add(&w->v, TX, bufs, first < len ? 2 : 1);
	drv_kick(&w->v, TX);
	drv_run(&w->v);
	if (!(drv_read(&w->v, DRV_STATUS) & DRV_NEEDS_RESET)) {
		assert_true(drv_used(&w->v, TX, &head, &got));
		assert_int_equal(got, 0);
	}
}

static ssize_t tap_read(struct world *w, uint8_t *buf, size_t size)
{
	return recv(w->tap, buf, size, MSG_DONTWAIT);
}

static bool passes(struct world *w, const uint8_t *f, size_t len)
{
	static uint8_t got[NET_HDR_BYTES + NET_LARGE_BYTES + 1];
	struct vio_net_stats before = stats(w), after;
	ssize_t n;

	send_raw(w, f, len, len < 100 ? len : 100);
	n = tap_read(w, got, sizeof(got));
	after = stats(w);
	if (n < 0) {
		assert_int_equal(after.tx_dropped, before.tx_dropped + 1);
		assert_int_equal(after.tx_frames, before.tx_frames);
		return false;
	}
	assert_int_equal(after.tx_dropped, before.tx_dropped);
	assert_int_equal(after.tx_frames, before.tx_frames + 1);
	assert_int_equal(after.tx_bytes, before.tx_bytes + len - NET_HDR_BYTES);
	assert_int_equal(n, len);
	assert_memory_equal(got + NET_HDR_BYTES, f + NET_HDR_BYTES, len - NET_HDR_BYTES);
	return true;
}

static void test_sent_frame_reaches_the_tap(void **state)
{
	static const size_t sizes[] = {14, 15, 60, 1514, 1518};
	uint8_t f[NET_HDR_BYTES + NET_FRAME_BYTES];
	struct world w;

	start(&w, UINT64_MAX);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		make_frame(f, sizes[i], guest_mac);
		assert_true(passes(&w, f, NET_HDR_BYTES + sizes[i]));
	}
	assert_int_equal(drv_interrupts(&w.v) != 0, 1);
	stop(&w);
}

/* Frames wait in the guest's queue until the release, and are then sent in order. */
static void test_sent_frames_are_held_until_the_release(void **state)
{
	uint8_t f[NET_HDR_BYTES + 60], got[NET_HDR_BYTES + 60];
	struct drv_buf buf = {0, sizeof(f), false};
	struct world w;
	uint16_t head;
	uint32_t len;

	start(&w, UINT64_MAX);
	vio_net_hold(w.v.dev);
	make_frame(f, 60, guest_mac);
	for (unsigned i = 0; i < 3; i++) {
		buf.addr = w.tx + i * 4096;
		f[NET_HDR_BYTES + 20] = (uint8_t)i;
		memcpy(drv_ptr(&w.v, buf.addr), f, sizeof(f));
		drv_add(&w.v, TX, &buf, 1);
		drv_kick(&w.v, TX);
		drv_run(&w.v);
	}
	assert_true(tap_read(&w, got, sizeof(got)) < 0);
	assert_false(drv_used(&w.v, TX, &head, &len));
	vio_net_release(w.v.dev);
	drv_run(&w.v);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(tap_read(&w, got, sizeof(got)), sizeof(got));
		assert_int_equal(got[NET_HDR_BYTES + 20], i);
		assert_true(drv_used(&w.v, TX, &head, &len));
	}
	vio_net_release(w.v.dev);
	drv_run(&w.v);
	assert_true(passes(&w, f, sizeof(f)));
	stop(&w);
}

static void test_sent_frames_of_wrong_size_or_source_are_dropped(void **state)
{
	uint8_t f[NET_HDR_BYTES + NET_FRAME_BYTES + 1];
	struct world w;

	start(&w, UINT64_MAX);
	make_frame(f, NET_FRAME_BYTES + 1, guest_mac);
	assert_false(passes(&w, f, NET_HDR_BYTES + NET_FRAME_BYTES + 1));
	assert_false(passes(&w, f, NET_HDR_BYTES + 13));
	assert_false(passes(&w, f, NET_HDR_BYTES));
	for (unsigned i = 0; i < 48; i++) {
		uint8_t mac[6];

		memcpy(mac, guest_mac, 6);
		mac[i / 8] ^= (uint8_t)(1u << i % 8);
		make_frame(f, 60, mac);
		assert_false(passes(&w, f, NET_HDR_BYTES + 60));
	}
	make_frame(f, 60, guest_mac);
	assert_true(passes(&w, f, NET_HDR_BYTES + 60));
	stop(&w);
}

struct header {
	uint8_t flags, gso;
	uint16_t hdr_len, gso_size, csum_start, csum_offset;
};

static void put_header(uint8_t *f, struct header h)
{
	struct wire w = wire_on(f, NET_HDR_BYTES);

	wire_put_u8(&w, h.flags);
	wire_put_u8(&w, h.gso);
	wire_put_u16(&w, h.hdr_len);
	wire_put_u16(&w, h.gso_size);
	wire_put_u16(&w, h.csum_start);
	wire_put_u16(&w, h.csum_offset);
	wire_put_u16(&w, 0xffff);
}

static bool header_passes(struct world *w, struct header h, size_t len)
{
	static uint8_t f[NET_HDR_BYTES + NET_LARGE_BYTES + 1];

	make_frame(f, len, guest_mac);
	put_header(f, h);
	return passes(w, f, NET_HDR_BYTES + len);
}

static void test_sent_frames_with_invalid_offloads_are_dropped(void **state)
{
	struct world w;

	start(&w, UINT64_MAX);
	assert_true(header_passes(&w, (struct header){1, 0, 0, 0, 34, 16}, 200));
	assert_true(header_passes(&w, (struct header){1, 1, 54, 1448, 34, 16}, 60000));
	assert_true(header_passes(&w, (struct header){1, 0x81, 54, 1448, 34, 16}, 60000));
	assert_true(header_passes(&w, (struct header){1, 4, 54, 1448, 54, 16}, NET_LARGE_BYTES));
	/* unknown flags, types and sizes */
	assert_false(header_passes(&w, (struct header){2, 0, 0, 0, 34, 16}, 200));
	assert_false(header_passes(&w, (struct header){3, 0, 0, 0, 34, 16}, 200));
	assert_false(header_passes(&w, (struct header){0, 1, 54, 1448, 34, 16}, 2000));
	assert_false(header_passes(&w, (struct header){1, 1, 54, 47, 34, 16}, 2000));
	assert_false(header_passes(&w, (struct header){1, 2, 54, 1448, 34, 16}, 2000));
	assert_false(header_passes(&w, (struct header){1, 3, 54, 1448, 34, 16}, 2000));
	assert_false(header_passes(&w, (struct header){1, 5, 54, 1448, 34, 16}, 2000));
	assert_false(header_passes(&w, (struct header){1, 0x80, 54, 1448, 34, 16}, 2000));
	assert_false(
		header_passes(&w, (struct header){1, 1, 54, 1448, 34, 16}, NET_LARGE_BYTES + 1));
	assert_false(header_passes(&w, (struct header){1, 0, 0, 0, 34, 16}, 1519));
	/* a checksum outside of the frame, or in its first header */
	assert_true(header_passes(&w, (struct header){1, 0, 0, 0, 182, 16}, 200));
	assert_false(header_passes(&w, (struct header){1, 0, 0, 0, 183, 16}, 200));
	assert_false(header_passes(&w, (struct header){1, 0, 0, 0, 0xffff, 0xffff}, 200));
	assert_false(header_passes(&w, (struct header){1, 0, 0, 0, 13, 16}, 200));
	stop(&w);
}

static void test_offloads_must_be_negotiated(void **state)
{
	struct world w;

	start(&w, NET_F(CSUM));
	assert_true(header_passes(&w, (struct header){1, 0, 0, 0, 34, 16}, 200));
	assert_false(header_passes(&w, (struct header){1, 1, 54, 1448, 34, 16}, 2000));
	assert_false(header_passes(&w, (struct header){1, 4, 54, 1448, 34, 16}, 2000));
	stop(&w);
	start(&w, NET_F(CSUM) | NET_F(HOST_TSO4));
	assert_true(header_passes(&w, (struct header){1, 1, 54, 1448, 34, 16}, 2000));
	assert_false(header_passes(&w, (struct header){1, 4, 54, 1448, 34, 16}, 2000));
	assert_false(header_passes(&w, (struct header){1, 0x81, 54, 1448, 34, 16}, 2000));
	stop(&w);
	start(&w, 0);
	assert_true(header_passes(&w, (struct header){0}, 200));
	assert_false(header_passes(&w, (struct header){1, 0, 0, 0, 34, 16}, 200));
	stop(&w);
}

/* Fields that were not checked must not reach the tap. */
static void test_unused_header_fields_are_cleared(void **state)
{
	static const uint8_t plain[NET_HDR_BYTES] = {0, 0, 200};
	uint8_t f[NET_HDR_BYTES + 200], got[NET_HDR_BYTES + 200];
	struct world w;

	start(&w, UINT64_MAX);
	make_frame(f, 200, guest_mac);
	put_header(f, (struct header){0, 0, 0xffff, 0, 0xffff, 0xffff});
	send_raw(&w, f, sizeof(f), 5); /* in two buffers, split inside the header */
	assert_int_equal(tap_read(&w, got, sizeof(got)), sizeof(got));
	assert_memory_equal(got, plain, NET_HDR_BYTES);
	assert_memory_equal(got + NET_HDR_BYTES, f + NET_HDR_BYTES, 200);
	stop(&w);
}

static void test_sending_waits_while_the_tap_is_full(void **state)
{
	uint8_t f[NET_HDR_BYTES + 1000], got[sizeof(f)];
	unsigned offered = 0, taken = 0, heard = 0;
	struct world w;
	uint16_t head;
	uint32_t len;

	start(&w, UINT64_MAX);
	make_frame(f, 1000, guest_mac);
	memcpy(drv_ptr(&w.v, w.tx), f, sizeof(f));
	for (unsigned round = 0; round < 50; round++) {
		while (offered - taken < 64) {
			drv_add(&w.v, TX, &(struct drv_buf){w.tx, sizeof(f), false}, 1);
			offered++;
		}
		drv_kick(&w.v, TX);
		drv_run(&w.v); /* drv_run aborts when the device polls */
		while (drv_used(&w.v, TX, &head, &len))
			taken++;
		if (offered - taken == 64)
			break;
	}
	assert_int_equal(offered - taken, 64); /* the tap is full */
	while (heard < offered) {
		while (tap_read(&w, got, sizeof(got)) == sizeof(got))
			heard++;
		drv_run(&w.v);
	}
	while (drv_used(&w.v, TX, &head, &len))
		taken++;
	assert_int_equal(taken, offered);
	assert_int_equal(stats(&w).tx_dropped, 0);
	stop(&w);
}

static void test_sent_frames_are_dropped_without_a_tap(void **state)
{
	struct world w = {0};
	uint8_t f[NET_HDR_BYTES + 60];

	make(&w, (int[2]){-1, -1});
	drv_start(&w.v, UINT64_MAX, 64);
	assert_int_equal(drv_read(&w.v, DRV_CONFIG + 4) >> 16, 0); /* link down */
	make_frame(f, 60, guest_mac);
	send_raw(&w, f, sizeof(f), sizeof(f));
	assert_int_equal(stats(&w).tx_dropped, 1);
	stop(&w);
}

/* --- The guest receives --- */

static void offer_rx(struct world *w, unsigned n, uint32_t bytes)
{
	for (unsigned i = 0; i < n; i++) {
		uint16_t at = w->v.q[RX].next_desc;

		drv_add(&w->v, RX, &(struct drv_buf){w->rx + (uint64_t)at * bytes, bytes, true}, 1);
	}
	drv_kick(&w->v, RX);
	drv_run(&w->v);
}

static void tap_send(struct world *w, const uint8_t *f, size_t len)
{
	assert_int_equal(send(w->tap, f, len, MSG_DONTWAIT), len);
	drv_run(&w->v);
}

/* Takes the next frame that the guest received in buffers of `bytes`. Returns its length, or 0 for
 * none. */
static size_t receive(struct world *w, uint8_t *out, uint32_t bytes)
{
	uint16_t head, parts = 1;
	size_t at = 0;
	uint32_t len;

	for (uint16_t i = 0; i < parts; i++) {
		if (!drv_used(&w->v, RX, &head, &len)) {
			assert_int_equal(i, 0); /* a frame arrives whole or not at all */
			return 0;
		}
		memcpy(out + at, drv_ptr(&w->v, w->rx + (uint64_t)head * bytes), len);
		if (i == 0)
			parts = (uint16_t)(out[10] | out[11] << 8);
		if (i + 1 < parts)
			assert_int_equal(len, bytes);
		at += len;
	}
	assert_int_not_equal(parts, 0);
	return at;
}

static void expect(struct world *w, const uint8_t *f, size_t len, uint32_t bytes)
{
	static uint8_t got[NET_HDR_BYTES + NET_LARGE_BYTES];

	assert_int_equal(receive(w, got, bytes), len);
	assert_memory_equal(got + NET_HDR_BYTES, f + NET_HDR_BYTES, len - NET_HDR_BYTES);
}

static void test_received_frame_reaches_the_guest(void **state)
{
	uint8_t f[NET_HDR_BYTES + 1514], got[NET_HDR_BYTES + 1514];
	struct world w;

	start(&w, UINT64_MAX & ~TSO_RX);
	make_frame(f, 1514, gateway_mac);
	offer_rx(&w, 4, 1600);
	tap_send(&w, f, sizeof(f));
	assert_int_equal(receive(&w, got, 1600), sizeof(f));
	assert_memory_equal(got + NET_HDR_BYTES, f + NET_HDR_BYTES, 1514);
	assert_memory_equal(got, ((uint8_t[12]){[10] = 1}), 12);
	assert_true(drv_interrupts(&w.v));
	tap_send(&w, f, NET_HDR_BYTES + 14);
	expect(&w, f, NET_HDR_BYTES + 14, 1600);
	tap_send(&w, f, NET_HDR_BYTES + 13); /* too short for a frame */
	assert_int_equal(receive(&w, got, 1600), 0);
	assert_int_equal(stats(&w).rx_dropped, 1);
	assert_int_equal(stats(&w).rx_frames, 2);
	assert_int_equal(stats(&w).rx_bytes, 1514 + 14);
	stop(&w);
}

static void test_large_frame_takes_many_buffers(void **state)
{
	static uint8_t f[NET_HDR_BYTES + NET_LARGE_BYTES + 1];
	struct world w = {0};

	start_with(&w, UINT64_MAX, 256);
	make_frame(f, NET_LARGE_BYTES + 1, gateway_mac);
	put_header(f, (struct header){1, 1, 54, 1448, 34, 16});
	offer_rx(&w, 100, 1536);
	for (unsigned i = 0; i < 2; i++) {
		tap_send(&w, f, NET_HDR_BYTES + 60000);
		expect(&w, f, NET_HDR_BYTES + 60000, 1536);
	}
	/* The remaining buffers can't hold a frame of the maximum size, so it waits in the tap. */
	tap_send(&w, f, NET_HDR_BYTES + NET_LARGE_BYTES);
	assert_int_equal(receive(&w, (uint8_t[2000]){0}, 1536), 0);
	offer_rx(&w, 80, 1536);
	expect(&w, f, NET_HDR_BYTES + NET_LARGE_BYTES, 1536);
	tap_send(&w, f, NET_HDR_BYTES + NET_LARGE_BYTES + 1);
	tap_send(&w, f, NET_HDR_BYTES + 60);
	expect(&w, f, NET_HDR_BYTES + 60, 1536);
	assert_int_equal(stats(&w).rx_dropped, 1);
	stop(&w);
}

/* A ring too small for the largest frame gets the frames that fit into all of its buffers. */
static void test_small_ring_gets_only_frames_that_fit(void **state)
{
	static uint8_t f[NET_HDR_BYTES + 20000];
	struct world w = {0};

	start_with(&w, UINT64_MAX, 8);
	make_frame(f, 20000, gateway_mac);
	put_header(f, (struct header){1, 4, 54, 1448, 34, 16});
	offer_rx(&w, 7, 1536); /* too few, but one more may come */
	tap_send(&w, f, NET_HDR_BYTES + 9000);
	assert_int_equal(receive(&w, (uint8_t[2000]){0}, 1536), 0);
	offer_rx(&w, 1, 1536);
	expect(&w, f, NET_HDR_BYTES + 9000, 1536);
	offer_rx(&w, 6, 1536);
	tap_send(&w, f, NET_HDR_BYTES + 20000);
	tap_send(&w, f, NET_HDR_BYTES + 60);
	expect(&w, f, NET_HDR_BYTES + 60, 1536);
	assert_int_equal(stats(&w).rx_dropped, 1);
	stop(&w);
}

static void test_frame_takes_one_chain_without_mergeable_buffers(void **state)
{
	static uint8_t f[NET_HDR_BYTES + 9000], got[NET_HDR_BYTES + 9000];
	struct world w;
	uint16_t head;
	uint32_t len;

	start(&w, (UINT64_MAX & ~TSO_RX) & ~MRG);
	make_frame(f, 9000, gateway_mac);
	drv_add(&w.v, RX,
		(struct drv_buf[]){
			{w.rx, 12, true}, {w.rx + 12, 100, true}, {w.rx + 112, 1500, true}},
		3);
	drv_kick(&w.v, RX);
	drv_run(&w.v);
	tap_send(&w, f, NET_HDR_BYTES + 1601); /* one byte too long */
	tap_send(&w, f, NET_HDR_BYTES + 1400);
	assert_true(drv_used(&w.v, RX, &head, &len));
	assert_int_equal(len, NET_HDR_BYTES + 1400);
	memcpy(got, drv_ptr(&w.v, w.rx), len);
	assert_int_equal(got[10], 1);
	assert_memory_equal(got + NET_HDR_BYTES, f + NET_HDR_BYTES, 1400);
	assert_int_equal(stats(&w).rx_dropped, 1);
	stop(&w);
}

static bool header_arrives(uint64_t features, struct header h, uint8_t flags_after)
{
	uint8_t f[NET_HDR_BYTES + 200], got[1600];
	struct world w;
	size_t len;

	start(&w, features | MRG);
	offer_rx(&w, 60, 1536);
	make_frame(f, 200, gateway_mac);
	put_header(f, h);
	tap_send(&w, f, sizeof(f));
	len = receive(&w, got, 1536);
	if (len) {
		assert_int_equal(got[0], flags_after);
		assert_int_equal(got[1], h.gso);
	}
	assert_int_equal(stats(&w).rx_dropped, len ? 0 : 1);
	stop(&w);
	return len;
}

static void test_only_negotiated_offloads_are_received(void **state)
{
	const struct header csum = {1, 0, 0, 0, 34, 16}, valid = {2, 0, 0, 0, 0, 0};
	const struct header tso4 = {1, 1, 54, 1448, 34, 16}, tso6 = {1, 4, 74, 1448, 54, 16};
	const struct header ecn = {1, 0x81, 54, 1448, 34, 16}, udp = {1, 3, 42, 1400, 34, 6};

	assert_true(header_arrives(TSO_RX, csum, 1));
	assert_true(header_arrives(TSO_RX, valid, 2));
	assert_true(header_arrives(TSO_RX, tso4, 1));
	assert_true(header_arrives(TSO_RX, tso6, 1));
	assert_true(header_arrives(TSO_RX, ecn, 1));
	assert_false(header_arrives(TSO_RX, udp, 0));
	assert_false(header_arrives(0, csum, 0));
	assert_true(header_arrives(0, valid, 0));
	assert_false(header_arrives(NET_F(GUEST_CSUM), tso4, 0));
	assert_false(header_arrives(NET_F(GUEST_CSUM) | NET_F(GUEST_TSO4), tso6, 0));
	assert_false(header_arrives(NET_F(GUEST_CSUM) | NET_F(GUEST_TSO4), ecn, 0));
}

static void test_received_frames_wait_for_buffers(void **state)
{
	uint8_t f[NET_HDR_BYTES + 100];
	struct world w;

	start(&w, MRG | DRV_F_EVENT_IDX);
	for (uint8_t i = 0; i < 5; i++) {
		make_frame(f, 100, gateway_mac);
		f[50] = i;
		tap_send(&w, f, sizeof(f)); /* drv_run would abort if the device polled */
	}
	for (uint8_t i = 0; i < 5; i++) {
		offer_rx(&w, 1, 1600);
		f[50] = i;
		expect(&w, f, sizeof(f), 1600);
	}
	assert_int_equal(stats(&w).rx_dropped, 0);
	stop(&w);
}

static void test_lost_tap_takes_the_link_down(void **state)
{
	uint8_t f[NET_HDR_BYTES + 60];
	struct world w;

	start(&w, UINT64_MAX);
	offer_rx(&w, 8, 1600);
	assert_int_equal(drv_read(&w.v, DRV_CONFIG + 4) >> 16, 1);
	drv_interrupts(&w.v);
	close(w.tap);
	w.tap = -1;
	drv_run(&w.v);
	assert_int_equal(drv_read(&w.v, DRV_CONFIG + 4) >> 16, 0);
	assert_true(drv_interrupts(&w.v));
	assert_true(drv_read(&w.v, DRV_INT_STATUS) & 2);
	make_frame(f, 60, guest_mac);
	send_raw(&w, f, sizeof(f), sizeof(f));
	assert_int_equal(stats(&w).tx_dropped, 1);
	stop(&w);
}

/* --- Bad drivers --- */

static void expect_fault(struct world *w)
{
	assert_true(drv_read(&w->v, DRV_STATUS) & DRV_NEEDS_RESET);
	stop(w);
}

static void test_invalid_buffers_are_faults(void **state)
{
	struct world w;

	start(&w, UINT64_MAX);
	drv_add(&w.v, RX, &(struct drv_buf){w.rx, 1600, false}, 1);
	offer_rx(&w, 0, 1600);
	expect_fault(&w);
	start(&w, UINT64_MAX);
	offer_rx(&w, 1, 11);
	expect_fault(&w);
	start(&w, UINT64_MAX);
	send_raw(&w, (uint8_t[11]){0}, 11, 11);
	expect_fault(&w);
	start(&w, UINT64_MAX);
	drv_add(&w.v, TX, &(struct drv_buf){w.tx, 100, true}, 1);
	drv_kick(&w.v, TX);
	drv_run(&w.v);
	expect_fault(&w);
}

/* Chains of many tiny buffers fill the device's window before it has room for a large frame. */
static void test_chains_of_tiny_buffers_receive_a_frame(void **state)
{
	uint8_t f[NET_HDR_BYTES + 300], got[400] = {0};
	struct world w = {0};
	uint16_t head;
	uint32_t len;

	start_with(&w, UINT64_MAX, 256);
	make_frame(f, 300, gateway_mac);
	for (unsigned i = 0; i < 2; i++) {
		struct drv_buf bufs[100];

		for (unsigned b = 0; b < 100; b++)
			bufs[b] = (struct drv_buf){w.rx + 4096 * i + 4 * b, 4, true};
		drv_add(&w.v, RX, bufs, 100);
	}
	drv_kick(&w.v, RX);
	/* A third chain, with an indirect table, since the ring's descriptors are used up. */
	for (unsigned b = 0; b < 100; b++)
		memcpy(drv_ptr(&w.v, w.tx + 16ull * b),
		       &(struct drv_desc){w.rx + 8192 + 4 * b, 4,
					  (uint16_t)(DRV_WRITE | (b < 99 ? DRV_NEXT : 0)),
					  (uint16_t)(b + 1)},
		       16);
	drv_set_desc(&w.v, RX, 200, (struct drv_desc){w.tx, 1600, DRV_INDIRECT_DESC, 0});
	drv_offer(&w.v, RX, 200);
	drv_kick(&w.v, RX);
	drv_run(&w.v);
	tap_send(&w, f, sizeof(f));
	assert_true(drv_used(&w.v, RX, &head, &len));
	assert_int_equal(len, sizeof(f));
	memcpy(got, drv_ptr(&w.v, w.rx), len);
	assert_memory_equal(got + NET_HDR_BYTES, f + NET_HDR_BYTES, 300);
	stop(&w);
}

/* --- Drain, save, restore --- */

static void test_drained_device_uses_no_buffers(void **state)
{
	uint8_t f[NET_HDR_BYTES + 100];
	struct world w;
	uint16_t head;
	uint32_t len;

	start(&w, MRG);
	offer_rx(&w, 8, 1600);
	make_frame(f, 100, guest_mac);
	assert_true(vio_mmio_drain(w.v.mmio));
	assert_int_equal(w.v.dev->vq[RX].next_avail, 0); /* no buffer is held */
	tap_send(&w, f, sizeof(f));
	memcpy(drv_ptr(&w.v, w.tx), f, sizeof(f));
	drv_add(&w.v, TX, &(struct drv_buf){w.tx, sizeof(f), false}, 1);
	drv_kick(&w.v, TX);
	drv_run(&w.v);
	assert_false(drv_used(&w.v, RX, &head, &len));
	assert_false(drv_used(&w.v, TX, &head, &len));
	vio_mmio_continue(w.v.mmio);
	drv_run(&w.v);
	assert_true(drv_used(&w.v, TX, &head, &len));
	expect(&w, f, sizeof(f), 1600);
	stop(&w);
}

/* Restores the device in a child of a fork, which has the same memory and another tap. */
static void test_restored_device_continues_with_its_own_tap(void **state)
{
	uint8_t f[NET_HDR_BYTES + 100], got[200], saved[512];
	struct wire out = wire_on(saved, sizeof(saved)), in;
	struct world w, child = {0};
	int fds[2];

	start(&w, MRG);
	offer_rx(&w, 8, 1600);
	make_frame(f, 100, gateway_mac);
	tap_send(&w, f, sizeof(f));
	expect(&w, f, sizeof(f), 1600);
	drv_write(&w.v, DRV_INT_ACK, 3);
	assert_true(vio_mmio_drain(w.v.mmio));
	vio_mmio_save(w.v.mmio, &out);
	assert_false(out.bad);

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	make(&child, fds);
	memcpy(child.v.mem.base, w.v.mem.base, w.v.mem.bytes);
	memcpy(child.v.q, w.v.q, sizeof(w.v.q));
	in = wire_from(saved, out.pos);
	assert_int_equal(vio_mmio_restore(child.v.mmio, &in, NULL), 0);
	vio_mmio_resumed(child.v.mmio);
	vio_mmio_continue(w.v.mmio);
	drv_run(&child.v);
	assert_int_equal(drv_interrupts(&child.v), 0); /* nothing has changed for the guest */

	f[40] = 'c';
	tap_send(&child, f, sizeof(f));
	expect(&child, f, sizeof(f), 1600);
	f[40] = 'p';
	tap_send(&w, f, sizeof(f));
	expect(&w, f, sizeof(f), 1600);
	make_frame(f, 100, guest_mac);
	send_raw(&child, f, sizeof(f), 50);
	assert_int_equal(tap_read(&child, got, sizeof(got)), sizeof(f));
	assert_int_equal(tap_read(&w, got, sizeof(got)), -1);
	stop(&w);
	stop(&child);
}

static void test_restored_device_reports_a_changed_link(void **state)
{
	uint8_t saved[512];
	struct wire out = wire_on(saved, sizeof(saved)), in;
	struct world w, child = {0};

	start(&w, MRG);
	assert_true(vio_mmio_drain(w.v.mmio));
	vio_mmio_save(w.v.mmio, &out);
	make(&child, (int[2]){-1, -1});
	memcpy(child.v.mem.base, w.v.mem.base, w.v.mem.bytes);
	in = wire_from(saved, out.pos);
	assert_int_equal(vio_mmio_restore(child.v.mmio, &in, NULL), 0);
	vio_mmio_resumed(child.v.mmio);
	drv_run(&child.v);
	assert_true(drv_interrupts(&child.v));
	assert_true(drv_read(&child.v, DRV_INT_STATUS) & 2);
	assert_int_equal(drv_read(&child.v, DRV_CONFIG + 4) >> 16, 0);
	stop(&w);
	stop(&child);
}

static void test_reset_drops_receive_buffers(void **state)
{
	uint8_t f[NET_HDR_BYTES + 100];
	struct world w;

	start(&w, MRG);
	offer_rx(&w, 8, 1600);
	make_frame(f, 100, gateway_mac);
	drv_start(&w.v, MRG, 64);
	tap_send(&w, f, sizeof(f));
	assert_int_equal(receive(&w, (uint8_t[200]){0}, 1600), 0);
	offer_rx(&w, 1, 1600);
	expect(&w, f, sizeof(f), 1600);
	stop(&w);
}

static void test_config_space_has_address_and_mtu(void **state)
{
	struct world w;

	start(&w, UINT64_MAX);
	for (unsigned i = 0; i < 6; i++) {
		uint8_t byte;

		bus_read(&w.v.bus, BUS_MMIO, DRV_ADDR + DRV_CONFIG + i, &byte, 1);
		assert_int_equal(byte, guest_mac[i]);
	}
	assert_int_equal(drv_read(&w.v, DRV_CONFIG + 8) >> 16, NET_MTU);
	assert_int_equal(drv_read(&w.v, DRV_CONFIG + 12), 0);
	assert_int_equal(w.v.features & (MRG | TSO_RX | TSO_TX), MRG | TSO_RX | TSO_TX);
	stop(&w);
}

/* --- The kernel's tap and the device must read the header alike --- */

#define BIG 4014 /* three segments */

/* Makes a tap like the warden's. Returns -1 where that is not allowed. */
static int make_tap(void)
{
	struct ifreq ifr = {.ifr_name = "ramet-test",
			    .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), bytes = NET_HDR_BYTES;
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0)
		return -1;
	assert_int_equal(ioctl(fd, TUNSETVNETHDRSZ, &bytes), 0);
	assert_int_equal(
		ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN), 0);
	ifr.ifr_flags = IFF_UP;
	assert_int_equal(ioctl(s, SIOCSIFFLAGS, &ifr), 0);
	close(s);
	return fd;
}

/* Opens a socket for the host's end of the tap, including offloads. */
static int open_wire(void)
{
	struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_protocol = htons(0x0800)};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(0x0800)), one = 1;

	a.sll_ifindex = (int)if_nametoindex("ramet-test");
	assert_int_equal(setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* Makes a frame with three TCP segments over IPv4, from 192.168.252.2 to 192.168.252.1. */
static void make_segments(uint8_t *f, const uint8_t *source)
{
	static const uint8_t ip[] = {0x45, 0, 0,   0,	0,   0, 0,   0,	  64,  6,
				     0,	   0, 192, 168, 252, 2, 192, 168, 252, 1};
	uint8_t *h = f + NET_HDR_BYTES + NET_ETH_BYTES;

	make_frame(f, BIG, source);
	net_put16(h - 2, 0x0800);
	memcpy(h, ip, sizeof(ip));
	net_put16(h + 2, BIG - NET_ETH_BYTES);
	net_put16(h + 10, net_sum_fold(net_sum(h, sizeof(ip))));
	h[32] = 5 << 4; /* length of the TCP header */
	put_header(f, (struct header){1, 1, 54, 1448, 34, 16});
}

static void talk_over_tap(int tap)
{
	static uint8_t f[NET_HDR_BYTES + BIG], got[NET_HDR_BYTES + BIG];
	int wire = open_wire();
	struct world w = {0};
	const size_t hdr = 10; /* a packet socket has the older header */
	size_t len;

	make(&w, (int[2]){-1, tap});
	drv_start(&w.v, UINT64_MAX, 256);
	make_segments(f, guest_mac);
	send_raw(&w, f, sizeof(f), 100);
	assert_int_equal(stats(&w).tx_frames, 1);
	assert_int_equal(recv(wire, got, sizeof(got), MSG_DONTWAIT), hdr + BIG);
	assert_memory_equal(got, ((uint8_t[]){1, 1}), 2);
	assert_memory_equal(got + 4, f + 4, 6);
	assert_memory_equal(got + hdr, f + NET_HDR_BYTES, BIG);

	offer_rx(&w, 200, 1536);
	make_segments(f, gateway_mac);
	memmove(got, f, hdr);
	memcpy(got + hdr, f + NET_HDR_BYTES, BIG);
	assert_int_equal(send(wire, got, hdr + BIG, 0), hdr + BIG);
	drv_run(&w.v);
	do { /* skips frames that the kernel sends on its own */
		len = receive(&w, got, 1536);
		assert_true(len > 0);
	} while (net_get16(got + NET_HDR_BYTES + 12) != 0x0800);
	assert_int_equal(len, sizeof(f));
	assert_memory_equal(got, ((uint8_t[]){1, 1}), 2);
	assert_memory_equal(got + 4, f + 4, 6);
	assert_memory_equal(got + NET_HDR_BYTES, f + NET_HDR_BYTES, BIG);
	close(wire);
	stop(&w);
}

/* Runs in a child process, in a new network namespace. */
static void test_kernel_tap_carries_frames(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		int tap = unshare(CLONE_NEWNET) < 0 ? -1 : make_tap();

		if (tap >= 0)
			talk_over_tap(tap);
		_exit(tap < 0 ? 77 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip(); /* taps can't be made here */
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sent_frame_reaches_the_tap),
		cmocka_unit_test(test_sent_frames_are_held_until_the_release),
		cmocka_unit_test(test_sent_frames_of_wrong_size_or_source_are_dropped),
		cmocka_unit_test(test_sent_frames_with_invalid_offloads_are_dropped),
		cmocka_unit_test(test_offloads_must_be_negotiated),
		cmocka_unit_test(test_unused_header_fields_are_cleared),
		cmocka_unit_test(test_sending_waits_while_the_tap_is_full),
		cmocka_unit_test(test_sent_frames_are_dropped_without_a_tap),
		cmocka_unit_test(test_received_frame_reaches_the_guest),
		cmocka_unit_test(test_large_frame_takes_many_buffers),
		cmocka_unit_test(test_small_ring_gets_only_frames_that_fit),
		cmocka_unit_test(test_frame_takes_one_chain_without_mergeable_buffers),
		cmocka_unit_test(test_only_negotiated_offloads_are_received),
		cmocka_unit_test(test_received_frames_wait_for_buffers),
		cmocka_unit_test(test_lost_tap_takes_the_link_down),
		cmocka_unit_test(test_invalid_buffers_are_faults),
		cmocka_unit_test(test_chains_of_tiny_buffers_receive_a_frame),
		cmocka_unit_test(test_drained_device_uses_no_buffers),
		cmocka_unit_test(test_restored_device_continues_with_its_own_tap),
		cmocka_unit_test(test_restored_device_reports_a_changed_link),
		cmocka_unit_test(test_reset_drops_receive_buffers),
		cmocka_unit_test(test_config_space_has_address_and_mtu),
		cmocka_unit_test(test_kernel_tap_carries_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
