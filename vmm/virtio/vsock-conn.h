// SPDX-License-Identifier: Apache-2.0
/*
 * One vsock connection: joins a guest port to a stream socket of the host. It handles packets,
 * credit and the socket; queues, timers and other connections are the device's (vsock.c).
 */
#ifndef RAMET_VMM_VIRTIO_VSOCK_CONN_H
#define RAMET_VMM_VIRTIO_VSOCK_CONN_H

#include <linux/virtio_vsock.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "vmm/dev/event-loop.h"

#define VSOCK_HDR_BYTES ((uint32_t)sizeof(struct virtio_vsock_hdr))
#define VSOCK_HOST_CID	2u
#define SHUTDOWN_BOTH	(VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND)
/*
 * Maximum that a guest may send ahead of the socket. The buffer is allocated only while the socket
 * is full.
 */
#define CONN_BUF_BYTES (256u << 10)

enum conn_state {
	CONN_REQUESTED, /* waiting for the guest's answer */
	CONN_UP,
	/* Over for the guest; what the guest has sent is still written to the socket. */
	CONN_FLUSHING,
};

/* What the device has to do with a connection after an event. */
enum conn_decision {
	CONN_KEEP,
	CONN_ABORT, /* drop it and reset the guest's side (RST) */
	CONN_END,   /* closed by the guest: answer with RST, flush, drop */
	CONN_LOST,  /* reset by the guest: flush, drop */
};

struct vsock;
struct conn_ticket; /* the waiter for the answer to a connection request */

struct vsock_conn {
	struct list node; /* on the device's list of connections that want to send */
	struct vsock *vsock;
	struct conn_ticket *ticket;
	struct event_watch *watch;
	struct event_timer timer;
	uint32_t watched; /* events that the watch is set to */
	uint32_t host_port, guest_port;
	int fd;
	enum conn_state state;

	bool request_sent;
	bool credit_due;   /* the guest needs a credit update */
	bool credit_asked; /* a credit update was requested, and no packet has come since */
	uint8_t shutdown_sent;

	bool readable;	 /* the socket may have data */
	bool hung_up;	 /* the socket's other end is closed */
	bool host_eof;	 /* the host sends no more */
	bool host_deaf;	 /* the host reads no more */
	bool guest_eof;	 /* the guest sends no more */
	bool guest_deaf; /* the guest reads no more */

	/*
	 * Host to guest: size of the guest's buffer, bytes that it has consumed, bytes sent to it;
	 * the last two modulo 2^32.
	 */
	uint32_t peer_alloc, peer_fwd, sent;
	/*
	 * Guest to host: bytes received, accepted by the socket, and reported to the guest as
	 * forwarded.
	 */
	uint32_t received, forwarded, credited;
	/* Received but not accepted by the socket: buf_len bytes from buf_start, circular. */
	uint8_t *buf;
	uint32_t buf_start, buf_len;
};

/* Creates a connection that owns `fd`. Returns NULL, with fd closed, when memory is short. */
struct vsock_conn *vsock_conn_new(uint32_t host_port, uint32_t guest_port, int fd);
/* Closes the socket. Remove watch, timer and ticket before. */
void vsock_conn_free(struct vsock_conn *c);

/* True when vsock_conn_produce may have a packet. */
bool vsock_conn_wants_to_send(const struct vsock_conn *c);
/*
 * Makes the next packet for the guest, with its payload in `in` (at most `room` bytes). Returns 1,
 * 0 when there is none after all, or -errno when the socket failed.
 */
int vsock_conn_produce(struct vsock_conn *c, struct virtio_vsock_hdr *h, const struct iovec *in,
		       unsigned n, size_t room);
/* Processes a packet from the guest; h->len bytes of payload begin at `offset` of `out`. */
enum conn_decision vsock_conn_on_packet(struct vsock_conn *c, const struct virtio_vsock_hdr *h,
					const struct iovec *out, unsigned n, size_t offset);
/* Processes events of the socket. */
enum conn_decision vsock_conn_on_socket(struct vsock_conn *c, uint32_t events);
/* True when the socket has accepted all that the guest sent, or never will. */
bool vsock_conn_is_flushed(const struct vsock_conn *c);
/* Sets the watch to the events that the connection waits for now. */
void vsock_conn_update_watch(struct vsock_conn *c);

#endif
