// SPDX-License-Identifier: Apache-2.0
/*
 * One vsock connection: a guest port joined to a stream socket of the host's. It knows packets,
 * credit and the socket; queues, timers and who else there is are the device's (vsock.c).
 */
#ifndef RAMET_VMM_VIRTIO_VSOCK_CONN_H
#define RAMET_VMM_VIRTIO_VSOCK_CONN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "vmm/dev/loop.h"

#define VSOCK_HDR_BYTES 44u
#define VSOCK_HOST_CID	2u
#define VSOCK_STREAM	1u
/* What a guest may send before the socket took it; allocated only while the socket is full. */
#define CONN_BUF_BYTES (256u << 10)

enum vsock_op {
	OP_REQUEST = 1,
	OP_RESPONSE,
	OP_RST,
	OP_SHUTDOWN,
	OP_RW,
	OP_CREDIT_UPDATE,
	OP_CREDIT_REQUEST,
};

enum { SHUTDOWN_RCV = 1, SHUTDOWN_SEND = 2, SHUTDOWN_BOTH = 3 };

struct vsock_hdr { /* v1.2, 5.10.6 */
	uint64_t src_cid, dst_cid;
	uint32_t src_port, dst_port;
	uint32_t len;
	uint16_t type, op;
	uint32_t flags, buf_alloc, fwd_cnt;
};

enum conn_state {
	CONN_REQUESTED, /* waits for the guest's answer */
	CONN_UP,
	CONN_FLUSHING, /* over for the guest; what it sent still goes to the socket */
};

/* What is to become of a connection after an event. */
enum conn_verdict {
	CONN_KEEP,
	CONN_ABORT, /* drop it and tell the guest (RST) */
	CONN_END,   /* the guest closed it: answer with RST, flush, drop */
	CONN_LOST,  /* the guest reset it: flush, drop */
};

struct vsock;
struct conn_ticket; /* who waits for the answer to the request */

struct conn {
	struct list node; /* on the device's list of those that want to send */
	struct vsock *vsock;
	struct conn_ticket *ticket;
	struct loop_watch *watch;
	struct loop_timer timer;
	uint32_t watched; /* events the watch is set to */
	uint32_t host_port, guest_port;
	int fd;
	enum conn_state state;

	bool request_sent;
	bool credit_due;   /* the guest should know how far we are */
	bool credit_asked; /* we asked, and the guest sent nothing since */
	uint8_t shutdown_sent;

	bool readable;	 /* the socket may have data */
	bool hung_up;	 /* the socket's other end is closed */
	bool host_eof;	 /* nothing more comes from the host */
	bool host_deaf;	 /* the host reads no more */
	bool guest_eof;	 /* nothing more comes from the guest */
	bool guest_deaf; /* the guest reads no more */

	/* Host to guest, in bytes modulo 2^32: the guest's buffer, what it took, what we sent. */
	uint32_t peer_alloc, peer_fwd, sent;
	/* Guest to host: what came, what the socket took, how much of that the guest knows. */
	uint32_t received, forwarded, told;
	uint8_t *buf; /* came and was not taken: buf_len bytes from buf_start, circular */
	uint32_t buf_start, buf_len;
};

/* Owns `fd` from here on; NULL (and fd closed) when memory is short. */
struct conn *conn_new(uint32_t host_port, uint32_t guest_port, int fd);
/* Closes the socket. Watch, timer and ticket were taken off before. */
void conn_free(struct conn *c);

/* True when conn_produce has something to say (or at least should look). */
bool conn_wants_to_send(const struct conn *c);
/*
 * Makes the next packet for the guest, its payload in `in` (at most `room` bytes): 1, 0 when there
 * is none after all, -errno when the socket failed.
 */
int conn_produce(struct conn *c, struct vsock_hdr *h, const struct iovec *in, unsigned n,
		 size_t room);
/* A packet from the guest; h->len bytes of payload begin at `offset` of `out`. */
enum conn_verdict conn_on_packet(struct conn *c, const struct vsock_hdr *h, const struct iovec *out,
				 unsigned n, size_t offset);
/* The socket is ready. */
enum conn_verdict conn_on_socket(struct conn *c, uint32_t events);
/* True when all that the guest sent is in the socket, or never will be. */
bool conn_is_flushed(const struct conn *c);
/* Sets the watch to what the connection waits for now. */
void conn_update_watch(struct conn *c);

#endif
