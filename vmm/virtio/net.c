// SPDX-License-Identifier: Apache-2.0
/* Network device (virtio v1.2, 5.1) on a tap. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "vmm/virtio/net-internal.h"

/* A guest forgets a router that it has not heard from for this long (RFC 8319: 65535 at most). */
#define ROUTER_LIFETIME_S 65535
#define ADVERTISE_NS	  (6ull * 3600 * 1000000000)

static struct net *self(struct vio_dev *d)
{
	return (struct net *)d;
}

/* --- The tap --- */

static void update_watch(struct net *n)
{
	uint32_t events = 0;

	if (!n->watch || n->gone)
		return;
	if (n->dev.active && !n->dev.quiesced && n->dev.vq[NET_QUEUE_RX].ready && !n->rx_no_buffers)
		events |= EPOLLIN;
	if (n->dev.active && !n->dev.quiesced && n->tx_full)
		events |= EPOLLOUT;
	if (events != n->watched)
		event_watch_set(n->watch, events);
	n->watched = events;
}

/* Notifies the driver when the link state differs from what it knows. */
static void notify_link(struct net *n)
{
	if (n->notified_link == net_link(n))
		return;
	n->notified_link = net_link(n);
	vio_config_changed(&n->dev);
}

void net_lose_link(struct net *n)
{
	if (n->gone)
		return;
	log_warn("the network link is down: the tap failed");
	n->gone = true;
	event_watch_mute(n->watch);
	notify_link(n);
}

static void on_tap(void *arg, uint32_t events)
{
	struct net *n = arg;

	vio_enter(&n->dev);
	if (events & (EPOLLERR | EPOLLHUP))
		net_lose_link(n);
	if (n->dev.active && !n->dev.quiesced) {
		if (n->tx_full)
			net_tx_pump(n);
		net_rx_pump(n);
	}
	update_watch(n);
	vio_leave(&n->dev);
}

/* --- The advertised router --- */

static void on_advertise(void *arg)
{
	struct net *n = arg;

	vio_enter(&n->dev);
	if (n->advertised)
		net_queue_advertisement(n);
	if (n->dev.active && !n->dev.quiesced)
		net_rx_pump(n);
	update_watch(n);
	vio_leave(&n->dev);
}

void net_queue_advertisement(struct net *n)
{
	n->answer_len = net_advertisement(n->ipv6 ? ROUTER_LIFETIME_S : 0, n->answer);
	n->advertised = n->ipv6;
	event_timer_clear(n->dev.loop, &n->advertise);
	if (n->advertised)
		event_timer_set(n->dev.loop, &n->advertise, ADVERTISE_NS);
}

/* --- The device --- */

static void net_on_kick(struct vio_dev *d, unsigned queue)
{
	struct net *n = self(d);

	if (queue == NET_QUEUE_TX)
		net_tx_pump(n);
	if (queue == NET_QUEUE_RX || n->answer_len)
		net_rx_pump(n);
	update_watch(n);
}

static void net_config_read(struct vio_dev *d, uint32_t offset, uint8_t *data, uint32_t len)
{
	const struct virtio_net_config config = {
		.mac = NET_GUEST_MAC,
		.status = self(d)->notified_link ? VIRTIO_NET_S_LINK_UP : 0,
		.max_virtqueue_pairs = 1,
		.mtu = NET_MTU,
	};

	vio_config_copy(&config, sizeof(config), offset, data, len);
}

static void net_reset(struct vio_dev *d)
{
	struct net *n = self(d);

	net_rx_forget(n);
	n->answer_len = 0;
	n->rx_no_buffers = n->tx_full = n->advertised = false;
	event_timer_clear(d->loop, &n->advertise);
	n->notified_link = net_link(n);
	update_watch(n);
}

/* Frames in the tap stay there: they are not part of a snapshot. */
static bool net_drain(struct vio_dev *d)
{
	struct net *n = self(d);

	net_rx_return(n);
	update_watch(n);
	return true;
}

static void net_save(const struct vio_dev *d, struct wire *w)
{
	const struct net *n = (const struct net *)d;

	wire_put_u8(w, n->notified_link);
	wire_put_u8(w, n->advertised);
}

static int net_restore(struct vio_dev *d, struct wire *r, struct err *e)
{
	struct net *n = self(d);

	n->notified_link = wire_get_u8(r);
	n->advertised = wire_get_u8(r);
	return 0;
}

/* The snapshot may come from a host with another network. */
static void net_resumed(struct vio_dev *d)
{
	struct net *n = self(d);

	notify_link(n);
	if (n->advertised != n->ipv6)
		net_queue_advertisement(n);
	else if (n->advertised)
		event_timer_set(d->loop, &n->advertise, ADVERTISE_NS);
}

static void net_fini(struct vio_dev *d)
{
	struct net *n = self(d);

	event_timer_clear(d->loop, &n->advertise);
	event_watch_del(n->watch);
	close_fd(&n->tap_fd);
}

static void net_inspect(const struct vio_dev *d, struct report *r)
{
	const struct net *n = (const struct net *)d;

	report_add(
		r,
		"  link %s%s%s%s; to the guest %llu frames (%llu dropped), from it %llu (%llu)\n",
		net_link(n) ? "up" : "down", n->rx_no_buffers ? ", no receive buffers" : "",
		n->tx_full ? ", the tap is full" : "",
		__atomic_load_n(&n->held, __ATOMIC_ACQUIRE) ? ", frames of the guest held" : "",
		(unsigned long long)n->stats.rx_frames, (unsigned long long)n->stats.rx_dropped,
		(unsigned long long)n->stats.tx_frames, (unsigned long long)n->stats.tx_dropped);
}

static const struct vio_ops net_ops = {
	.name = "net",
	.id = 1,
	.queues = NET_QUEUES,
	.queue_size = NET_QUEUE_SIZE,
	.features = NET_F(CSUM) | NET_F(GUEST_CSUM) | NET_F(MTU) | NET_F(MAC) | NET_F(GUEST_TSO4) |
		    NET_F(GUEST_TSO6) | NET_F(GUEST_ECN) | NET_F(HOST_TSO4) | NET_F(HOST_TSO6) |
		    NET_F(HOST_ECN) | NET_F(MRG_RXBUF) | NET_F(STATUS),
	.config_read = net_config_read,
	.reset = net_reset,
	.on_kick = net_on_kick,
	.drain = net_drain,
	.save = net_save,
	.restore = net_restore,
	.resumed = net_resumed,
	.inspect = net_inspect,
	.fini = net_fini,
};

int vio_net_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop, int tap_fd,
		bool ipv6, struct err *e)
{
	struct net *n = calloc(1, sizeof(*n));
	int rc = 0;

	if (!n)
		return err_set(e, ENOMEM, "make the network device");
	n->dev = (struct vio_dev){.ops = &net_ops, .mem = mem, .loop = loop};
	n->tap_fd = tap_fd;
	n->ipv6 = ipv6;
	n->notified_link = tap_fd >= 0;
	n->advertise = (struct event_timer){.fn = on_advertise, .arg = n};
	if (tap_fd >= 0)
		rc = event_watch_add(loop, tap_fd, 0, on_tap, n, &n->watch, e);
	if (rc < 0) {
		free(n);
		return err_context(e, "the tap");
	}
	*out = &n->dev;
	return 0;
}

void vio_net_hold(struct vio_dev *d)
{
	__atomic_store_n(&self(d)->held, true, __ATOMIC_RELEASE);
}

void vio_net_release(struct vio_dev *d)
{
	if (!__atomic_exchange_n(&self(d)->held, false, __ATOMIC_ACQ_REL))
		return;
	/* Rings the doorbell like the driver, so that the loop takes the waiting frames. */
	vio_rekick(d, NET_QUEUE_TX);
}

struct vio_net_stats vio_net_stats(const struct vio_dev *d)
{
	return ((const struct net *)d)->stats;
}
