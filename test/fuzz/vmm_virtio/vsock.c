// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "guest.h"

#define CID   3
#define HOSTS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The clock advances only when the input says so. */
static uint64_t now_ns = 1000000000;
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	t->tv_sec = (time_t)(now_ns / 1000000000);
	t->tv_nsec = (long)(now_ns % 1000000000);
	return 0;
}

struct hosts {
	int fd[HOSTS];
	uint32_t port[HOSTS]; /* of the requests that the guest received */
	unsigned nports;
	int answered, dialled;
};

static void on_done(void *arg, int result)
{
	((struct hosts *)arg)->answered++;
}

static void dial(struct guest *g, struct hosts *h, unsigned i)
{
	int fds[2];

	if (h->fd[i] >= 0)
		close(h->fd[i]);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
		abort();
	h->fd[i] = fds[0];
	h->dialled++;
	vio_vsock_connect(g->v.dev, 100 + i, i == 0, fds[1], on_done, h);
}

/* Consumes the packets for the guest, and records the ports of requests. */
static void hear(struct guest *g, struct hosts *h)
{
	uint16_t head;
	uint32_t len, port;
	uint64_t addr;

	while (g->v.q[0].desc && drv_used(&g->v, 0, &head, &len)) {
		if (head >= 16)
			continue;
		memcpy(&addr, drv_ptr(&g->v, g->v.q[0].desc + 16ull * head), 8);
		if (addr > GUEST_MEM - 44)
			continue;
		memcpy(&port, drv_ptr(&g->v, addr + 16), 4);
		if (*(uint8_t *)drv_ptr(&g->v, addr + 30) == 1)
			h->port[h->nports++ % HOSTS] = port;
	}
}

static void offer_rx(struct guest *g)
{
	for (unsigned i = 0; g->v.q[0].desc && i < 4; i++)
		drv_add(&g->v, 0, &(struct drv_buf){16384 + 1024 * i, 1024, true}, 1);
	if (g->v.q[2].desc)
		drv_add(&g->v, 2, &(struct drv_buf){15000, 4, true}, 1);
	drv_kick(&g->v, 0);
	drv_kick(&g->v, 2);
}

/* Sends a packet that is well-formed except for the numbers from the input. */
static void packet(struct guest *g, struct hosts *h)
{
	struct wire o = wire_on(drv_ptr(&g->v, 24576), 44);
	uint8_t which = wire_get_u8(&g->in) % HOSTS, op = wire_get_u8(&g->in) % 10;
	uint8_t flags = wire_get_u8(&g->in), small = wire_get_u8(&g->in);
	uint32_t len = wire_get_u16(&g->in), alloc = wire_get_u32(&g->in);
	struct drv_buf bufs[] = {{24576, 44, false}, {28672, len, false}};

	if (!g->v.q[1].desc)
		return;
	wire_put_u64(&o, CID);
	wire_put_u64(&o, 2);
	wire_put_u32(&o, 100 + which);
	wire_put_u32(&o, small & 128 ? h->port[small % HOSTS] : h->port[which]);
	wire_put_u32(&o, len);
	wire_put_u16(&o, 1);
	wire_put_u16(&o, op);
	wire_put_u32(&o, flags);
	wire_put_u32(&o, alloc);
	wire_put_u32(&o, wire_get_u32(&g->in));
	drv_add(&g->v, 1, bufs, len ? 2 : 1);
	drv_kick(&g->v, 1);
}

static void host_acts(struct guest *g, struct hosts *h, uint8_t what)
{
	static char buf[65536];
	unsigned i = wire_get_u8(&g->in) % HOSTS;
	uint16_t n = wire_get_u16(&g->in);
	ssize_t ignored = 0;

	if (what == 0) {
		dial(g, h, i);
	} else if (h->fd[i] >= 0 && what == 1) {
		ignored = send(h->fd[i], buf, n, MSG_NOSIGNAL);
	} else if (h->fd[i] >= 0 && what == 2) {
		ignored = recv(h->fd[i], buf, n, 0);
	} else if (h->fd[i] >= 0 && what == 3) {
		shutdown(h->fd[i], n % 3);
	} else if (h->fd[i] >= 0) {
		close(h->fd[i]);
		h->fd[i] = -1;
	}
	(void)ignored;
}

static void special(struct guest *g, uint8_t what)
{
	struct hosts *h = g->arg;

	switch (what % 8) {
	case 0:
		packet(g, h);
		break;
	case 1:
		offer_rx(g);
		break;
	case 2:
		now_ns += wire_get_u8(&g->in) * 100000000ull;
		break;
	default:
		host_acts(g, h, (uint8_t)(what % 8 - 3));
	}
	guest_turn(g);
	hear(g, h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hosts h = {0};
	struct guest g = {.in = wire_from(data, size), .special = special, .arg = &h};
	struct vio_dev *dev;

	memset(h.fd, -1, sizeof(h.fd));
	drv_init(&g.v, GUEST_MEM);
	if (vio_vsock_new(&dev, &g.v.mem, g.v.loop, CID, NULL) < 0)
		abort();
	drv_attach(&g.v, dev);
	guest_maybe_restore(&g);
	guest_play(&g);
	drv_fini(&g.v);
	if (h.answered != h.dialled)
		abort(); /* each connect was answered exactly once */
	for (unsigned i = 0; i < HOSTS; i++)
		if (h.fd[i] >= 0)
			close(h.fd[i]);
	return 0;
}
