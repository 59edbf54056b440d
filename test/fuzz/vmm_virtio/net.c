// SPDX-License-Identifier: Apache-2.0
/* Runs the device with a hostile driver, and with arbitrary frames from the tap. Checks the frames
 * that reach the tap. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest.h"
#include "vmm/virtio/net-internal.h"

#define TX_AT 24576
#define RX_AT 32768

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t guest_mac[NET_MAC_BYTES] = NET_GUEST_MAC;

/* Checks that only frames with the guest's own addresses reach the tap, and none that the host's
 * kernel must not see. */
static void hear(int tap)
{
	static uint8_t f[NET_HDR_BYTES + NET_LARGE_BYTES + 1];
	ssize_t n;

	while (tap >= 0 && (n = recv(tap, f, sizeof(f), MSG_DONTWAIT)) > 0) {
		const uint8_t *eth = f + NET_HDR_BYTES;
		size_t len = (size_t)n - NET_HDR_BYTES;

		if ((size_t)n < NET_HDR_BYTES + NET_ETH_BYTES || (size_t)n == sizeof(f) ||
		    memcmp(eth + NET_MAC_BYTES, guest_mac, NET_MAC_BYTES) || f[0] > 1 || f[10] ||
		    f[11] || (f[1] && !f[0]) || (!f[1] && len > NET_FRAME_BYTES) ||
		    net_is_dhcp(eth, len) || net_is_solicitation(eth, len))
			abort();
	}
}

static void offer_rx(struct guest *g)
{
	uint16_t each = 64 + wire_get_u8(&g->in) * 8;

	for (unsigned i = 0; g->v.q[NET_QUEUE_RX].desc && i < 8; i++)
		drv_add(&g->v, NET_QUEUE_RX, &(struct drv_buf){RX_AT + each * i, each, true}, 1);
	drv_kick(&g->v, NET_QUEUE_RX);
}

/* Writes a header and a frame that are mostly valid. */
static void put_frame(struct guest *g, uint8_t *f, uint8_t len)
{
	memset(f, 0, NET_HDR_BYTES);
	wire_get_bytes(&g->in, f, wire_get_u8(&g->in) % (NET_HDR_BYTES + 1));
	memcpy(f + NET_HDR_BYTES + NET_MAC_BYTES, guest_mac, NET_MAC_BYTES);
	wire_get_bytes(&g->in, f + NET_HDR_BYTES + 2 * NET_MAC_BYTES, len);
}

static void guest_sends(struct guest *g)
{
	uint8_t len = wire_get_u8(&g->in);
	uint16_t more = wire_get_u16(&g->in) % 4096;

	if (!g->v.q[NET_QUEUE_TX].desc)
		return;
	put_frame(g, drv_ptr(&g->v, TX_AT), len);
	drv_add(&g->v, NET_QUEUE_TX,
		(struct drv_buf[]){{TX_AT, NET_HDR_BYTES + 2 * NET_MAC_BYTES + len, false},
				   {TX_AT + 1024, more, false}},
		more ? 2 : 1);
	drv_kick(&g->v, NET_QUEUE_TX);
}

/* Sends a DHCP request whose options come from the input. */
static void guest_asks(struct guest *g)
{
	static const uint8_t head[] = {0x45, 0, 1, 240, 0, 0, 0, 0, 64, 17};
	uint8_t *f = drv_ptr(&g->v, TX_AT), *ip = f + NET_HDR_BYTES + NET_ETH_BYTES;
	uint8_t *udp = ip + 20, *bootp = udp + 8;
	uint8_t len = wire_get_u8(&g->in);

	if (!g->v.q[NET_QUEUE_TX].desc)
		return;
	memset(f, 0, 1024);
	memcpy(f + NET_HDR_BYTES + NET_MAC_BYTES, guest_mac, NET_MAC_BYTES);
	net_put16(ip - 2, 0x0800);
	memcpy(ip, head, sizeof(head));
	net_put16(udp + 2, 67);
	net_put16(udp + 4, (uint16_t)(8 + 240 + len));
	memcpy(bootp, "\1\1\6", 3);
	wire_get_bytes(&g->in, bootp + 4, 12);
	memcpy(bootp + 28, guest_mac, NET_MAC_BYTES);
	memcpy(bootp + 236, "\x63\x82\x53\x63", 4);
	wire_get_bytes(&g->in, bootp + 240, len);
	drv_add(&g->v, NET_QUEUE_TX,
		&(struct drv_buf){TX_AT, (uint32_t)(bootp + 240 + len - f), false}, 1);
	drv_kick(&g->v, NET_QUEUE_TX);
}

static void tap_sends(struct guest *g, int tap)
{
	static uint8_t f[NET_HDR_BYTES + NET_LARGE_BYTES + 1];
	size_t len = wire_get_u16(&g->in);
	ssize_t ignored;

	if (tap < 0)
		return;
	wire_get_bytes(&g->in, f, wire_get_u8(&g->in) % 64);
	ignored = send(tap, f, len ? len : 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)ignored;
}

static void special(struct guest *g, uint8_t what)
{
	int *tap = g->arg;

	switch (what % 6) {
	case 0:
		offer_rx(g);
		break;
	case 1:
		guest_sends(g);
		break;
	case 2:
		guest_asks(g);
		break;
	case 3:
		if (*tap >= 0 && wire_get_u8(&g->in) == 0) {
			close(*tap);
			*tap = -1;
		}
		break;
	default:
		tap_sends(g, *tap);
	}
	guest_turn(g);
	hear(*tap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fds[2] = {-1, -1};
	struct guest g = {.in = wire_from(data, size), .special = special, .arg = &fds[0]};
	uint8_t how = wire_get_u8(&g.in);
	struct vio_dev *dev;

	if (!(how & 1) &&
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
		abort();
	drv_init(&g.v, GUEST_MEM);
	if (vio_net_new(&dev, &g.v.mem, g.v.loop, fds[1], how & 2, NULL) < 0)
		abort();
	drv_attach(&g.v, dev);
	guest_maybe_restore(&g);
	guest_play(&g);
	hear(fds[0]);
	drv_fini(&g.v);
	if (fds[0] >= 0)
		close(fds[0]);
	return 0;
}
