// SPDX-License-Identifier: Apache-2.0
/*
 * Socket device (virtio v1.2, 5.10): stream connections from the host to guest ports, each joined
 * to a stream socket. Connections from the guest are refused. Everything that a guest can make the
 * device store is bounded: connections, bytes per connection, and answers to packets without a
 * connection.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/elements.h"
#include "base/fd.h"
#include "vmm/virtio/device.h"
#include "vmm/virtio/vsock-conn.h"

enum { QUEUE_RX, QUEUE_TX, QUEUE_EVENT, QUEUES };

#define QUEUE_SIZE 256
/*
 * The guest keeps a page for each entry of this queue and uses the entries in turn, so each of its
 * first packets makes one more own page (kvm/ram.h). 64 pages are as much as its window (256 KiB).
 */
#define RX_ADVERTISED 64
#define CONNS_MAX     256u
#define RESETS_MAX    64u /* queued answers; further ones are dropped, which the spec allows */
#define ANSWER_NS     5000000000ull /* timeout for the guest's answer to a request */
#define CLOSE_NS      8000000000ull /* timeout for the guest to close what the host closed */
#define SHOWN_MAX     40u	    /* connections listed in a report */

/*
 * Buffers of the guest's packets are returned in batches: an interrupt for each would cost the
 * guest more than the packet did, and it only needs the memory back.
 */
#define HELD_SHARE  4		  /* at most one in this many entries of the queue */
#define HELD_BYTES  (256u << 10)  /* at most this many bytes */
#define HELD_MAX_NS 1000000000ull /* for at most this long */

/*
 * A host port consists of the connection's slot and, above it, a serial number. Snapshots carry the
 * next serial number, so a restored guest does not see ports of its old connections again.
 */
#define SLOT_BITS  8   /* for CONNS_MAX slots */
#define SERIAL_MIN 16u /* ports below 4096 are never used */
#define SERIAL_END 0xffffffu

/* A result to be reported once the device's lock is released. */
struct conn_ticket {
	struct list node;
	vio_vsock_done *done;
	void *arg;
	int result;
};

struct reset {
	uint32_t host_port, guest_port;
	uint16_t type;
};

/* The argument of watches and timers, which outlives the connection in it. */
struct slot {
	struct vsock *vsock;
	struct vsock_conn *conn; /* NULL: free */
};

struct vsock {
	struct vio_dev dev;
	uint64_t guest_cid;
	uint32_t serial;
	unsigned nconns;
	struct slot slot[CONNS_MAX];
	struct list ready;    /* connections that want to send, served in turn */
	struct list outcomes; /* tickets with a result */
	struct reset resets[RESETS_MAX];
	unsigned reset_first, nresets;
	/* After a restore the guest must drop its old connections before it sees new ones. */
	bool event_due;	      /* the event is not in the queue yet */
	bool event_under_way; /* the guest has not processed the event yet */
	/* The guest's index of the event queue when the event was put there. */
	uint16_t event_offered;
	uint16_t held; /* packets that were taken and not returned yet */
	uint64_t held_bytes;
	struct event_timer held_timer;
	struct vq_chain chain;
};

static struct vsock *self(const struct vio_dev *d)
{
	return (struct vsock *)(uintptr_t)d;
}

/* --- connections --- */

static void complete_ticket(struct vsock_conn *c, int result)
{
	struct conn_ticket *t = c->ticket;

	if (!t)
		return;
	c->ticket = NULL;
	t->result = result;
	list_add_tail(&c->vsock->outcomes, &t->node);
}

static void drop(struct vsock_conn *c)
{
	struct vsock *v = c->vsock;

	v->slot[c->host_port % CONNS_MAX].conn = NULL;
	v->nconns--;
	list_del(&c->node);
	event_timer_clear(v->dev.loop, &c->timer);
	event_watch_del(c->watch);
	vsock_conn_free(c);
}

static void queue_reset(struct vsock *v, uint32_t host_port, uint32_t guest_port, uint16_t type)
{
	if (v->nresets == RESETS_MAX)
		return;
	v->resets[(v->reset_first + v->nresets++) % RESETS_MAX] =
		(struct reset){host_port, guest_port, type};
}

static void reset_guest_side(struct vsock_conn *c)
{
	if (c->request_sent)
		queue_reset(c->vsock, c->host_port, c->guest_port, VIRTIO_VSOCK_TYPE_STREAM);
}

/* Closes the connection for the guest, and drops it once its data has gone to the host. */
static void flush_and_drop(struct vsock_conn *c)
{
	event_timer_clear(c->vsock->dev.loop, &c->timer);
	list_del(&c->node);
	c->state = CONN_FLUSHING;
	if (vsock_conn_is_flushed(c))
		drop(c);
	else
		vsock_conn_update_watch(c);
}

/*
 * Queues a connection that wants to send, or updates the watch of one that does not. pump updates
 * the watches of those that are still queued when it has sent packets.
 */
static void keep(struct vsock_conn *c)
{
	struct vsock *v = c->vsock;

	if (c->state == CONN_FLUSHING) {
		flush_and_drop(c);
		return;
	}
	if (c->shutdown_sent == SHUTDOWN_BOTH && !c->timer.due_ns)
		event_timer_set(v->dev.loop, &c->timer, CLOSE_NS);
	if (!vsock_conn_wants_to_send(c)) {
		list_del(&c->node);
		vsock_conn_update_watch(c);
	} else if (list_empty(&c->node)) {
		list_add_tail(&v->ready, &c->node);
	}
}

static void settle(struct vsock_conn *c, enum conn_decision decision)
{
	if (c->ticket && c->state == CONN_UP) {
		event_timer_clear(c->vsock->dev.loop, &c->timer);
		complete_ticket(c, 0);
	}
	switch (decision) {
	case CONN_KEEP:
		keep(c);
		break;
	case CONN_ABORT:
		complete_ticket(c, -ECONNRESET);
		reset_guest_side(c);
		drop(c);
		break;
	case CONN_END:
		reset_guest_side(c);
		flush_and_drop(c);
		break;
	case CONN_LOST:
		complete_ticket(c, -ECONNREFUSED);
		flush_and_drop(c);
		break;
	}
}

/*
 * Returns the connection of a packet from the guest, or NULL. A connection that is closed for the
 * guest does not count.
 */
static struct vsock_conn *find(const struct vsock *v, const struct virtio_vsock_hdr *h)
{
	struct vsock_conn *c = v->slot[h->dst_port % CONNS_MAX].conn;

	if (!c || c->host_port != h->dst_port || c->guest_port != h->src_port ||
	    c->state == CONN_FLUSHING)
		return NULL;
	return c;
}

/* --- packets to the guest --- */

static void put_header(const struct vsock *v, const struct vq_chain *chain,
		       struct virtio_vsock_hdr *h)
{
	h->src_cid = VSOCK_HOST_CID;
	h->dst_cid = v->guest_cid;
	iov_write(vq_in(chain), chain->nin, 0, h, sizeof(*h));
}

static void take_reset(struct vsock *v, struct virtio_vsock_hdr *h)
{
	const struct reset *r = &v->resets[v->reset_first];

	*h = (struct virtio_vsock_hdr){.src_port = r->host_port,
				       .dst_port = r->guest_port,
				       .type = r->type,
				       .op = VIRTIO_VSOCK_OP_RST};
	v->reset_first = (v->reset_first + 1) % RESETS_MAX;
	v->nresets--;
}

/*
 * Makes the next packet, for the buffer in v->chain: a reset, or from the connection whose turn it
 * is. Returns false when the connection had nothing to send after all.
 */
static bool produce(struct vsock *v, struct virtio_vsock_hdr *h)
{
	size_t room = v->chain.in_bytes - VSOCK_HDR_BYTES;
	struct vsock_conn *c;
	int rc;

	if (v->nresets) {
		take_reset(v, h);
		return true;
	}
	c = container_of(v->ready.next, struct vsock_conn, node);
	list_del(&c->node); /* to the end of the list, if it has more */
	rc = vsock_conn_produce(c, h, vq_in(&v->chain), v->chain.nin, room);
	settle(c, rc < 0 ? CONN_ABORT : CONN_KEEP);
	return rc > 0;
}

static bool wants_to_send(const struct vsock *v)
{
	return v->nresets || !list_empty(&v->ready);
}

static bool pop_rx(struct vsock *v)
{
	struct vio_dev *d = &v->dev;

	if (!vio_pop_or_wait(d, QUEUE_RX, &v->chain))
		return false;
	if (v->chain.in_bytes <= VSOCK_HDR_BYTES || v->chain.nout) {
		vio_guest_fault(d, "receive buffer without room for a packet");
		return false;
	}
	return true;
}

static bool may_send(const struct vsock *v)
{
	return v->dev.active && !v->dev.quiesced && !v->event_due && !v->event_under_way;
}

static void send_packets(struct vsock *v)
{
	struct vio_dev *d = &v->dev;
	struct virtio_vsock_hdr h;
	unsigned left = QUEUE_SIZE;

	for (; left && wants_to_send(v) && pop_rx(v); left--) {
		if (produce(v, &h)) {
			put_header(v, &v->chain, &h);
			vq_push(&d->vq[QUEUE_RX], v->chain.head, VSOCK_HDR_BYTES + h.len);
		} else {
			vq_unpop(&d->vq[QUEUE_RX]);
		}
	}
	if (d->active)
		vio_notify(d, QUEUE_RX);
	if (!left)
		vio_rekick(d, QUEUE_RX);
}

/* Sends packets as long as the guest has buffers. */
static void pump(struct vsock *v)
{
	if (may_send(v))
		send_packets(v);
	list_each_of (c, struct vsock_conn, node, &v->ready)
		vsock_conn_update_watch(c);
}

/* --- packets from the guest --- */

static void on_packet(struct vsock *v, const struct virtio_vsock_hdr *h)
{
	struct vsock_conn *c;

	/* A packet with a wrong source or destination address is dropped (5.10.6.2). */
	if (h->src_cid != v->guest_cid || h->dst_cid != VSOCK_HOST_CID)
		return;
	c = h->type == VIRTIO_VSOCK_TYPE_STREAM ? find(v, h) : NULL;
	if (c)
		settle(c, vsock_conn_on_packet(c, h, vq_out(&v->chain), v->chain.nout,
					       VSOCK_HDR_BYTES));
	else if (h->op != VIRTIO_VSOCK_OP_RST)
		queue_reset(v, h->dst_port, h->src_port, h->type);
}

static void give_back(struct vsock *v)
{
	event_timer_clear(v->dev.loop, &v->held_timer);
	if (v->dev.active && v->held) {
		vq_publish(&v->dev.vq[QUEUE_TX], v->held);
		vio_notify(&v->dev, QUEUE_TX);
	}
	v->held = 0;
	v->held_bytes = 0;
}

static void hold(struct vsock *v)
{
	vq_put(&v->dev.vq[QUEUE_TX], v->held++, v->chain.head, 0);
	v->held_bytes += v->chain.out_bytes;
	if (v->held >= v->dev.vq[QUEUE_TX].size / HELD_SHARE || v->held_bytes >= HELD_BYTES)
		give_back(v);
	else if (!v->held_timer.due_ns)
		event_timer_set(v->dev.loop, &v->held_timer, HELD_MAX_NS);
}

static void take_packets(struct vsock *v)
{
	struct vio_dev *d = &v->dev;
	struct virtio_vsock_hdr h;
	unsigned left = QUEUE_SIZE;

	for (; left && vio_pop_or_wait(d, QUEUE_TX, &v->chain); left--) {
		if (iov_read(vq_out(&v->chain), v->chain.nout, 0, &h, sizeof(h)) < sizeof(h) ||
		    h.len > v->chain.out_bytes - sizeof(h)) {
			vio_guest_fault(d, "socket packet shorter than its header says");
			return;
		}
		on_packet(v, &h);
		hold(v);
	}
	if (!left)
		vio_rekick(d, QUEUE_TX);
}

/* --- the event queue --- */

static void put_event(struct vsock *v)
{
	struct vio_dev *d = &v->dev;
	const struct virtio_vsock_event event = {.id = VIRTIO_VSOCK_EVENT_TRANSPORT_RESET};

	if (!vio_pop(d, QUEUE_EVENT, &v->chain))
		return;
	if (iov_write(vq_in(&v->chain), v->chain.nin, 0, &event, sizeof(event)) != sizeof(event)) {
		vio_guest_fault(d, "event buffer too small");
		return;
	}
	v->event_offered = vq_offered(&d->vq[QUEUE_EVENT]);
	v->event_due = false;
	v->event_under_way = true;
	vq_push(&d->vq[QUEUE_EVENT], v->chain.head, sizeof(event));
	vio_notify(d, QUEUE_EVENT);
}

/*
 * A driver offers an event buffer again after it has processed the event in it. Only then does it
 * get packets of new connections, which it would otherwise reset together with the old ones.
 */
static void serve_events(struct vsock *v)
{
	struct vq *q = &v->dev.vq[QUEUE_EVENT];

	if (v->event_due)
		put_event(v);
	if (v->event_due)
		vq_enable_notification(q);
	else if (v->event_under_way && vq_enable_notification_at(q, v->event_offered))
		v->event_under_way = false;
}

/*
 * Drops the connections when the guest's driver is gone, has failed or drops them too. Those that
 * it does not know of may wait for the next driver, unless `unknown` is set.
 */
static void drop_all(struct vsock *v, bool unknown)
{
	for (unsigned i = 0; i < CONNS_MAX; i++) {
		struct vsock_conn *c = v->slot[i].conn;

		if (!c || (!unknown && c->state == CONN_REQUESTED && !c->request_sent))
			continue;
		complete_ticket(c, -ECONNRESET);
		drop(c);
	}
	v->nresets = 0;
}

static void vsock_on_kick(struct vio_dev *d, unsigned queue)
{
	struct vsock *v = self(d);

	if (queue == QUEUE_TX)
		take_packets(v);
	if (queue == QUEUE_EVENT)
		serve_events(v);
	pump(v);
	if (!d->active)
		drop_all(v, false);
}

/* --- the host's side --- */

static void on_socket(void *arg, uint32_t events)
{
	struct slot *s = arg;
	struct vio_dev *d = &s->vsock->dev;

	vio_enter(d);
	if (s->conn) /* a reset of the device may have dropped it just now */
		settle(s->conn, vsock_conn_on_socket(s->conn, events));
	pump(s->vsock);
	vio_leave(d);
}

static void on_timer(void *arg)
{
	struct slot *s = arg;
	struct vio_dev *d = &s->vsock->dev;

	vio_enter(d);
	if (s->conn) {
		complete_ticket(s->conn, -ETIMEDOUT);
		settle(s->conn, CONN_ABORT);
	}
	pump(s->vsock);
	vio_leave(d);
}

static void on_held_long(void *arg)
{
	struct vio_dev *d = arg;

	vio_enter(d);
	give_back(self(d));
	vio_leave(d);
}

static struct slot *free_slot(struct vsock *v, bool vital)
{
	if (!vital && v->nconns >= CONNS_MAX - 1)
		return NULL;
	for (unsigned i = 0; i < CONNS_MAX; i++)
		if (!v->slot[i].conn)
			return &v->slot[i];
	return NULL;
}

static uint32_t next_port(struct vsock *v, const struct slot *s)
{
	uint32_t port = v->serial << SLOT_BITS | (uint32_t)(s - v->slot);

	v->serial = v->serial + 1 == SERIAL_END ? SERIAL_MIN : v->serial + 1;
	return port;
}

/* Opens a connection. Owns `fd` in any case. Returns the index of its slot, or -errno. */
static int open_conn(struct vsock *v, uint32_t guest_port, bool vital, int fd)
{
	struct slot *s = free_slot(v, vital);
	struct vsock_conn *c;
	int rc;

	if (!s) {
		close_fd(&fd);
		return -EMFILE;
	}
	c = vsock_conn_new(next_port(v, s), guest_port, fd);
	if (!c)
		return -ENOMEM;
	c->vsock = v;
	c->timer = (struct event_timer){.fn = on_timer, .arg = s};
	rc = event_watch_add(v->dev.loop, fd, 0, on_socket, s, &c->watch, NULL);
	if (rc < 0) {
		vsock_conn_free(c);
		return rc;
	}
	event_timer_set(v->dev.loop, &c->timer, ANSWER_NS);
	s->conn = c;
	v->nconns++;
	list_add_tail(&v->ready, &c->node);
	return (int)(s - v->slot);
}

void vio_vsock_connect(struct vio_dev *d, uint32_t port, bool vital, int stream_fd,
		       vio_vsock_done *done, void *arg)
{
	struct vsock *v = self(d);
	struct conn_ticket *t = malloc(sizeof(*t));
	int slot;

	if (!t) {
		close_fd(&stream_fd);
		done(arg, -ENOMEM);
		return;
	}
	*t = (struct conn_ticket){.done = done, .arg = arg};
	vio_enter(d);
	slot = open_conn(v, port, vital, stream_fd);
	if (slot < 0) {
		t->result = slot;
		list_add_tail(&v->outcomes, &t->node);
	} else {
		v->slot[slot].conn->ticket = t;
		pump(v);
	}
	vio_leave(d);
}

unsigned vio_vsock_connections(const struct vio_dev *d)
{
	return self(d)->nconns;
}

/* --- the device --- */

static void vsock_config_read(struct vio_dev *d, uint32_t offset, uint8_t *data, uint32_t len)
{
	const struct virtio_vsock_config config = {.guest_cid = self(d)->guest_cid};

	vio_config_copy(&config, sizeof(config), offset, data, len);
}

static void vsock_reset(struct vio_dev *d)
{
	struct vsock *v = self(d);

	drop_all(v, false);
	v->event_due = v->event_under_way = false;
	give_back(v);
}

/* Returns the held packets, which are not part of a snapshot. */
static bool vsock_drain(struct vio_dev *d)
{
	give_back(self(d));
	return true;
}

static void vsock_save(const struct vio_dev *d, struct wire *w)
{
	wire_put_u32(w, self(d)->serial);
}

static int vsock_restore(struct vio_dev *d, struct wire *r, struct err *e)
{
	uint32_t serial = wire_get_u32(r);

	if (!r->bad && (serial < SERIAL_MIN || serial >= SERIAL_END))
		return err_say(e, EINVAL, "serial number %u of connections is out of range",
			       serial);
	self(d)->serial = serial;
	return 0;
}

static void vsock_resumed(struct vio_dev *d)
{
	struct vsock *v = self(d);

	drop_all(v, false);
	v->event_due = true; /* sent with the first kick of the event queue */
}

static void vsock_after_turn(struct vio_dev *d)
{
	struct vsock *v = self(d);

	list_drain_of (t, struct conn_ticket, node, &v->outcomes) {
		list_del(&t->node);
		t->done(t->arg, t->result);
		free(t);
	}
}

static unsigned socket_bytes(int fd, unsigned long request)
{
	int bytes = 0;

	return ioctl(fd, request, &bytes) < 0 || bytes < 0 ? 0 : (unsigned)bytes;
}

static void inspect_conn(const struct vsock_conn *c, struct report *r)
{
	static const char *const states[] = {
		[CONN_REQUESTED] = "requested", [CONN_UP] = "up", [CONN_FLUSHING] = "flushing"};

	report_add(r, "  connection %u to guest port %u: %s%s%s%s%s%s%s%s%s\n", c->host_port,
		   c->guest_port, states[c->state],
		   c->state == CONN_REQUESTED && !c->request_sent ? ", request not sent" : "",
		   list_empty(&c->node) ? "" : ", wants to send",
		   c->credit_due ? ", credit due" : "", c->credit_asked ? ", asked for credit" : "",
		   c->host_eof ? ", host sends no more" : "",
		   c->host_deaf ? ", host reads no more" : "",
		   c->guest_eof ? ", guest sends no more" : "",
		   c->guest_deaf ? ", guest reads no more" : "");
	report_add(
		r,
		"    to the guest: its buf_alloc %u, its fwd_cnt %u, our tx_cnt %u (%u in flight), "
		"%u bytes wait in the socket\n",
		c->peer_alloc, c->peer_fwd, c->sent, c->sent - c->peer_fwd,
		socket_bytes(c->fd, FIONREAD));
	report_add(r,
		   "    from the guest: our buf_alloc %u, our fwd_cnt %u (credited %u), its tx_cnt "
		   "%u, "
		   "%u bytes wait here, %u in buffers that the service has to read\n",
		   CONN_BUF_BYTES, c->forwarded, c->credited, c->received, c->buf_len,
		   socket_bytes(c->fd, SIOCOUTQ));
}

static void vsock_inspect(const struct vio_dev *d, struct report *r)
{
	const struct vsock *v = self(d);
	unsigned shown = 0;

	report_add(r, "  %u connections, %u resets wait, %u packets held (%llu bytes)%s%s\n",
		   v->nconns, v->nresets, v->held, (unsigned long long)v->held_bytes,
		   v->event_due ? ", reset event due" : "",
		   v->event_under_way ? ", reset event not taken by the guest" : "");
	for (unsigned i = 0; i < CONNS_MAX && shown < SHOWN_MAX; i++) {
		if (!v->slot[i].conn)
			continue;
		inspect_conn(v->slot[i].conn, r);
		shown++;
	}
	if (shown < v->nconns)
		report_add(r, "  and %u connections more\n", v->nconns - shown);
}

static void vsock_fini(struct vio_dev *d)
{
	struct vsock *v = self(d);

	drop_all(v, true);
	vsock_after_turn(d);
	event_timer_clear(d->loop, &v->held_timer);
}

static const struct vio_ops vsock_ops = {
	.name = "vsock",
	.id = 19,
	.queues = QUEUES,
	.queue_size = QUEUE_SIZE,
	.advertised_size = {[QUEUE_RX] = RX_ADVERTISED},
	.config_read = vsock_config_read,
	.reset = vsock_reset,
	.on_kick = vsock_on_kick,
	.drain = vsock_drain,
	.save = vsock_save,
	.restore = vsock_restore,
	.resumed = vsock_resumed,
	.after_turn = vsock_after_turn,
	.inspect = vsock_inspect,
	.fini = vsock_fini,
};

int vio_vsock_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop,
		  uint64_t guest_cid, struct err *e)
{
	struct vsock *v = calloc(1, sizeof(*v));

	if (!v)
		return err_set(e, ENOMEM, "make the socket device");
	v->dev = (struct vio_dev){.ops = &vsock_ops, .mem = mem, .loop = loop};
	v->guest_cid = guest_cid;
	v->serial = SERIAL_MIN;
	v->held_timer = (struct event_timer){.fn = on_held_long, .arg = &v->dev};
	for (unsigned i = 0; i < CONNS_MAX; i++)
		v->slot[i].vsock = v;
	*out = &v->dev;
	return 0;
}
