// SPDX-License-Identifier: Apache-2.0
/*
 * A connection from the host. It holds at most one frame in and one frame of output (and the few
 * short frames that end a call) on its way out, so memory stays bounded whatever the peer does.
 */
#ifndef RAMET_GUEST_CONN_H
#define RAMET_GUEST_CONN_H

#include <stdbool.h>

#include "base/list.h"
#include "guest/frame.h"
#include "guest/loop.h"

#define CONN_COUNT_MAX 256
#define CONN_OUT_MAX   (FRAME_MAX + 2048)

enum conn_op {
	CONN_IDLE,	  /* waits for a request */
	CONN_PING,	  /* waits for its pong */
	CONN_QUEUED,	  /* its EXEC waits for its turn, in `in` */
	CONN_CODE,	  /* its EXEC takes code */
	CONN_CALL,	  /* its code runs */
	CONN_WORKER,	  /* another process answers on it */
	CONN_WAITING,	  /* for its turn, with its request in `in` */
	CONN_PTY_LISTENS, /* gets a terminal's output */
	CONN_PTY_WAITS,	  /* for a terminal's start, or until it took the input in `in` */
	CONN_RESEED,	  /* waits until the driver has reseeded */
	CONN_ENDING,	  /* is closed as soon as all is sent */
	CONN_GONE,	  /* closed; freed before the next event */
};

struct conn {
	struct watch watch;
	struct list node; /* in all connections */
	struct list turn; /* in a queue: of calls, of what waits for a worker */
	enum conn_op op;
	bool held;   /* by conn_hold */
	bool corked; /* by conn_cork */
	bool seen;   /* the next byte in the socket was read already, see read_some */
	struct exec_request exec;
	struct pty *pty;	 /* that it listens to, types into or waits for */
	uint64_t place;		 /* in its output: of what is to be sent next */
	size_t typed;		 /* bytes of the payload that are done with */
	size_t out_pos, out_len; /* unsent: out[out_pos .. out_len) */
	struct frame_in in;
	uint8_t out[CONN_OUT_MAX];
};

/* What the rest of the agent does about connections. */
struct conn_ops {
	void (*on_frame)(struct conn *c, const struct frame *f); /* op is IDLE or CODE */
	void (*on_sent)(struct conn *c);			 /* nothing is unsent any more */
	void (*on_gone)(struct conn *c, enum conn_op was);	 /* already closed */
};

void conn_init(const struct conn_ops *ops);
/* Takes the socket over. NULL (and the socket closed) when there are too many or memory is out. */
struct conn *conn_new(int fd);
/* Moves to `op` and watches for what it needs. Frames are read in IDLE and CODE only. */
void conn_become(struct conn *c, enum conn_op op);
/* Stops or goes on reading code from a connection in CONN_CODE. */
void conn_hold(struct conn *c, bool held);

/* The payload of `len` bytes was put at conn_payload(): sends it as one frame. */
uint8_t *conn_payload(struct conn *c);
void conn_send_payload(struct conn *c, uint8_t type, size_t len);
/* Sends one frame; `len` is short (all short frames of one call fit beside one of output). */
void conn_send(struct conn *c, uint8_t type, const void *payload, size_t len);
void conn_send_error(struct conn *c, const struct err *e);
/* Keeps what is sent back until conn_uncork, so that it leaves at once and wakes its reader once:
 * a frame of output, and the short ones that end a call. */
void conn_cork(struct conn *c);
void conn_uncork(struct conn *c);

/* What is unsent was given to a process that goes on with this connection. */
void conn_hand_over(struct conn *c);
/* True when the peer is gone, though no event may have told it yet. */
bool conn_is_broken(const struct conn *c);
/* Closes now. */
void conn_drop(struct conn *c);
/* Frees what was closed; between events. */
void conn_reap(void);

extern struct list conn_all; /* of struct conn, by node */

#endif
