// SPDX-License-Identifier: Apache-2.0
#include "vmm/virtio/vsock-conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "vmm/virtio/queue.h"

#define PACKET_BYTES 65536u	/* maximum payload of a packet to the guest */
#define WATCH_MUTED  UINT32_MAX /* muted: not watched at all */

struct vsock_conn *vsock_conn_new(uint32_t host_port, uint32_t guest_port, int fd)
{
	struct vsock_conn *c = calloc(1, sizeof(*c));

	if (!c) {
		close_fd(&fd);
		return NULL;
	}
	c->host_port = host_port;
	c->guest_port = guest_port;
	c->fd = fd;
	c->state = CONN_REQUESTED;
	return c;
}

void vsock_conn_free(struct vsock_conn *c)
{
	close_fd(&c->fd);
	free(c->buf);
	free(c);
}

/* --- both directions --- */

static void note_forwarded(struct vsock_conn *c, uint32_t bytes)
{
	c->forwarded += bytes;
	/* Sends a credit update before the guest runs out of credit. */
	if (c->forwarded != c->credited && c->received - c->credited > CONN_BUF_BYTES / 2)
		c->credit_due = true;
}

static void drop_buffer(struct vsock_conn *c)
{
	free(c->buf);
	c->buf = NULL;
	c->buf_start = c->buf_len = 0;
}

/* The host reads no more: the guest's data is accepted and discarded. */
static void host_went_deaf(struct vsock_conn *c)
{
	uint32_t lost = c->buf_len;

	c->host_deaf = true;
	drop_buffer(c);
	note_forwarded(c, lost);
}

/* --- host to guest --- */

/* Returns how many bytes the guest has room for. A guest that lies about it only receives less. */
static uint32_t credit(const struct vsock_conn *c)
{
	uint32_t under_way = c->sent - c->peer_fwd;

	return under_way < c->peer_alloc ? c->peer_alloc - under_way : 0;
}

static bool wants_data(const struct vsock_conn *c)
{
	return c->state == CONN_UP && c->readable && !c->host_eof && !c->guest_deaf;
}

static uint8_t shutdown_flags(const struct vsock_conn *c)
{
	return (uint8_t)((c->host_eof ? VIRTIO_VSOCK_SHUTDOWN_SEND : 0) |
			 (c->host_deaf ? VIRTIO_VSOCK_SHUTDOWN_RCV : 0));
}

static bool wants_credit_request(const struct vsock_conn *c)
{
	return wants_data(c) && !credit(c) && !c->credit_asked;
}

bool vsock_conn_wants_to_send(const struct vsock_conn *c)
{
	if (c->state == CONN_REQUESTED)
		return !c->request_sent;
	if (c->state != CONN_UP)
		return false;
	return c->credit_due || shutdown_flags(c) != c->shutdown_sent ||
	       (wants_data(c) && credit(c)) || wants_credit_request(c);
}

/* Every packet carries a credit update. */
static void fill_header(struct vsock_conn *c, struct virtio_vsock_hdr *h, enum virtio_vsock_op op,
			uint32_t flags, uint32_t len)
{
	*h = (struct virtio_vsock_hdr){
		.src_port = c->host_port,
		.dst_port = c->guest_port,
		.len = len,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = (uint16_t)op,
		.flags = flags,
		.buf_alloc = CONN_BUF_BYTES,
		.fwd_cnt = c->forwarded,
	};
	c->credited = c->forwarded;
	c->credit_due = false;
}

static ssize_t receive(struct vsock_conn *c, const struct iovec *in, unsigned n, size_t room)
{
	struct iovec part[VQ_SIZE_MAX];
	struct msghdr m = {.msg_iov = part};

	m.msg_iovlen = iov_slice(in, n, VSOCK_HDR_BYTES, room, part);
	return recvmsg(c->fd, &m, MSG_DONTWAIT);
}

static int produce_data(struct vsock_conn *c, struct virtio_vsock_hdr *h, const struct iovec *in,
			unsigned n, size_t room)
{
	ssize_t got;

	if (room > PACKET_BYTES)
		room = PACKET_BYTES;
	if (room > credit(c))
		room = credit(c);
	got = receive(c, in, n, room);
	if (got > 0) {
		c->sent += (uint32_t)got;
		/* A short read: the socket is empty. The watch reports when it has data again. */
		c->readable = (size_t)got == room;
		fill_header(c, h, VIRTIO_VSOCK_OP_RW, 0, (uint32_t)got);
		return 1;
	}
	c->readable = false;
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	c->host_eof = true;
	if (c->hung_up)
		host_went_deaf(c);
	return 0;
}

int vsock_conn_produce(struct vsock_conn *c, struct virtio_vsock_hdr *h, const struct iovec *in,
		       unsigned n, size_t room)
{
	if (c->state == CONN_REQUESTED) {
		c->request_sent = true;
		fill_header(c, h, VIRTIO_VSOCK_OP_REQUEST, 0, 0);
		return 1;
	}
	if (wants_data(c) && credit(c)) {
		int rc = produce_data(c, h, in, n, room);

		if (rc)
			return rc;
	}
	if (shutdown_flags(c) != c->shutdown_sent) {
		c->shutdown_sent = shutdown_flags(c);
		fill_header(c, h, VIRTIO_VSOCK_OP_SHUTDOWN, c->shutdown_sent, 0);
	} else if (c->credit_due) {
		fill_header(c, h, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0, 0);
	} else if (wants_credit_request(c)) {
		c->credit_asked = true;
		fill_header(c, h, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0, 0);
	} else {
		return 0;
	}
	return 1;
}

/* --- guest to host --- */

/*
 * Returns how many bytes the socket accepted: 0 when it is full or its reader is gone (host_deaf).
 */
static uint32_t send_some(struct vsock_conn *c, struct iovec *iov, unsigned n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t sent = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent >= 0)
		return (uint32_t)sent;
	if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
		host_went_deaf(c);
	return 0;
}

static void end_output_if_done(struct vsock_conn *c)
{
	if (c->guest_eof && !c->buf_len && !c->host_deaf)
		shutdown(c->fd, SHUT_WR);
}

static void flush_buffer(struct vsock_conn *c)
{
	while (c->buf_len && !c->host_deaf) {
		uint32_t to_edge = CONN_BUF_BYTES - c->buf_start;
		uint32_t first = c->buf_len < to_edge ? c->buf_len : to_edge;
		struct iovec iov[2] = {{c->buf + c->buf_start, first},
				       {c->buf, c->buf_len - first}};
		uint32_t sent = send_some(c, iov, 2);

		if (!sent || c->host_deaf)
			break;
		c->buf_start = (c->buf_start + sent) % CONN_BUF_BYTES;
		c->buf_len -= sent;
		note_forwarded(c, sent);
	}
	if (!c->buf_len) {
		drop_buffer(c);
		end_output_if_done(c);
	}
}

static bool keep_in_buffer(struct vsock_conn *c, const struct iovec *out, unsigned n, size_t offset,
			   uint32_t len)
{
	uint32_t at = (c->buf_start + c->buf_len) % CONN_BUF_BYTES;
	uint32_t first = len < CONN_BUF_BYTES - at ? len : CONN_BUF_BYTES - at;

	if (!c->buf)
		c->buf = malloc(CONN_BUF_BYTES);
	if (!c->buf)
		return false;
	iov_read(out, n, offset, c->buf + at, first);
	iov_read(out, n, offset + first, c->buf, len - first);
	c->buf_len += len;
	return true;
}

static enum conn_decision on_data(struct vsock_conn *c, const struct virtio_vsock_hdr *h,
				  const struct iovec *out, unsigned n, size_t offset)
{
	struct iovec part[VQ_SIZE_MAX];
	uint32_t sent = 0, len = h->len;

	if (c->guest_eof || len > CONN_BUF_BYTES - (c->received - c->forwarded))
		return CONN_ABORT; /* data after the end of the stream, or beyond its credit */
	c->received += len;
	if (!c->buf_len && !c->host_deaf && len) {
		sent = send_some(c, part, iov_slice(out, n, offset, len, part));
		note_forwarded(c, sent);
	}
	if (c->host_deaf)
		note_forwarded(c, len - sent);
	else if (sent < len && !keep_in_buffer(c, out, n, offset + sent, len - sent))
		return CONN_ABORT;
	return CONN_KEEP;
}

static enum conn_decision on_shutdown(struct vsock_conn *c, uint32_t flags)
{
	if (flags & VIRTIO_VSOCK_SHUTDOWN_SEND) {
		c->guest_eof = true;
		end_output_if_done(c);
	}
	if ((flags & VIRTIO_VSOCK_SHUTDOWN_RCV) && !c->guest_deaf) {
		c->guest_deaf = true;
		shutdown(c->fd, SHUT_RD);
	}
	return c->guest_eof && c->guest_deaf ? CONN_END : CONN_KEEP;
}

static void take_credit(struct vsock_conn *c, const struct virtio_vsock_hdr *h)
{
	c->peer_alloc = h->buf_alloc;
	c->peer_fwd = h->fwd_cnt;
	c->credit_asked = false;
}

static enum conn_decision on_answer(struct vsock_conn *c, const struct virtio_vsock_hdr *h)
{
	if (h->op == VIRTIO_VSOCK_OP_RST)
		return CONN_LOST;
	if (h->op != VIRTIO_VSOCK_OP_RESPONSE || !c->request_sent)
		return CONN_ABORT;
	c->state = CONN_UP;
	c->readable = true; /* try once; the watch reports further data */
	return CONN_KEEP;
}

enum conn_decision vsock_conn_on_packet(struct vsock_conn *c, const struct virtio_vsock_hdr *h,
					const struct iovec *out, unsigned n, size_t offset)
{
	take_credit(c, h);
	if (c->state == CONN_REQUESTED)
		return on_answer(c, h);
	switch (h->op) {
	case VIRTIO_VSOCK_OP_RW:
		return on_data(c, h, out, n, offset);
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		return on_shutdown(c, h->flags);
	case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
		return CONN_KEEP;
	case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
		c->credit_due = true;
		return CONN_KEEP;
	case VIRTIO_VSOCK_OP_RST:
		return CONN_LOST;
	default:
		return CONN_ABORT;
	}
}

/* --- the socket --- */

static enum conn_decision on_hang_up(struct vsock_conn *c)
{
	c->hung_up = true;
	if (c->state == CONN_REQUESTED)
		return CONN_ABORT;
	if (c->state == CONN_FLUSHING || c->host_eof || c->guest_deaf) {
		c->host_eof = true;
		host_went_deaf(c);
	}
	return CONN_KEEP;
}

enum conn_decision vsock_conn_on_socket(struct vsock_conn *c, uint32_t events)
{
	enum conn_decision decision = CONN_KEEP;

	if (events & EPOLLOUT)
		flush_buffer(c);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		c->readable = true;
	if (events & (EPOLLHUP | EPOLLERR))
		decision = on_hang_up(c);
	return decision;
}

bool vsock_conn_is_flushed(const struct vsock_conn *c)
{
	return !c->buf_len || c->host_deaf;
}

static uint32_t events_wanted(const struct vsock_conn *c)
{
	uint32_t events = 0;

	if (c->buf_len && !c->host_deaf)
		events |= EPOLLOUT;
	if (c->state == CONN_UP && !c->readable && !c->host_eof && !c->guest_deaf)
		events |= EPOLLIN;
	/* The event loop would report a known hang-up again and again. */
	if (c->hung_up && !events)
		return WATCH_MUTED;
	return events;
}

void vsock_conn_update_watch(struct vsock_conn *c)
{
	uint32_t events = events_wanted(c);

	if (events == c->watched)
		return;
	c->watched = events;
	if (events == WATCH_MUTED)
		event_watch_mute(c->watch);
	else
		event_watch_set(c->watch, events);
}
