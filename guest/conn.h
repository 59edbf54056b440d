// SPDX-License-Identifier: Apache-2.0
/*
 * A connection from the host. It buffers at most one incoming frame, and one outgoing frame with
 * the few short frames that end a call, so its memory is bounded whatever the host does.
 */
#ifndef RAMET_GUEST_CONN_H
#define RAMET_GUEST_CONN_H

#include <stdbool.h>

#include "base/list.h"
#include "guest/frame.h"
#include "guest/loop.h"

#define CONN_COUNT_MAX 512
#define CONN_OUT_MAX   (FRAME_MAX + 2048)

struct interpreter;

enum conn_state {
	CONN_IDLE,	    /* waits for a request */
	CONN_PING,	    /* waits for AGENT_PONG */
	CONN_QUEUED,	    /* its AGENT_EXEC, in `in`, waits for the interpreter's earlier calls */
	CONN_CODE,	    /* the code of its AGENT_EXEC arrives */
	CONN_CALL,	    /* the code of its AGENT_EXEC runs */
	CONN_WORKER,	    /* a worker process answers its request on files */
	CONN_WAITING,	    /* its request on files, in `in`, waits until a worker is free */
	CONN_LISTENS,	    /* receives a process's output */
	CONN_LISTS,	    /* receives a list of processes */
	CONN_PROCESS_WAITS, /* waits until a process starts, or takes the input in `in` */
	CONN_CONTEXT,	    /* waits until its context's interpreter has started */
	CONN_RESEED,	    /* waits until the driver has reseeded */
	CONN_ENDING,	    /* closed as soon as everything is sent */
	CONN_GONE,	    /* closed; freed before the next event */
};

struct conn {
	struct watch watch;
	struct list node; /* in all connections */
	struct list turn; /* in the queue of the calls, of CONN_WAITING or of a process */
	enum conn_state state;
	bool held;   /* by conn_hold */
	bool corked; /* by conn_cork */
	bool seen;   /* read_some has peeked at the next byte in the socket */
	struct exec_request exec;
	struct interpreter *interpreter; /* runs the call of this connection; NULL: no call yet */
	/* The process that this connection listens to, writes to or waits for. */
	struct process *process;
	uint64_t output_offset;	 /* of the next byte to send, in the process's output */
	bool holds;		 /* when this listener lags, the process waits for it */
	uint64_t listed;	 /* number of the last process that was listed */
	size_t written;		 /* bytes of the payload that the process took */
	size_t out_pos, out_len; /* unsent: out[out_pos .. out_len) */
	struct frame_in in;
	uint8_t out[CONN_OUT_MAX];
};

/* Called by conn.c to report events of a connection to the rest of the agent. */
struct conn_ops {
	void (*on_frame)(struct conn *c, const struct frame *f); /* in CONN_IDLE or CONN_CODE */
	void (*on_sent)(struct conn *c);			 /* everything was sent */
	void (*on_gone)(struct conn *c, enum conn_state was);	 /* c is closed */
};

void conn_init(const struct conn_ops *ops);
/* Takes ownership of the socket. Returns NULL, with the socket closed, when there are too many
 * connections or no memory. */
struct conn *conn_new(int fd);
/* Moves the connection to `state` and watches the events that it needs. Frames are read in
 * CONN_IDLE and CONN_CODE only. */
void conn_become(struct conn *c, enum conn_state state);
/* Stops or continues reading code from a connection in CONN_CODE. */
void conn_hold(struct conn *c, bool held);

/* Returns the buffer for the payload of the next frame. */
uint8_t *conn_payload(struct conn *c);
/* Sends the first `len` bytes of that buffer as one frame. */
void conn_send_payload(struct conn *c, uint8_t type, size_t len);
/* Sends a short frame. The buffer has room for a frame of output and all short frames of a call;
 * when it is full, the connection is closed. */
void conn_send(struct conn *c, uint8_t type, const void *payload, size_t len);
/* These two end the operation, with AGENT_DONE or with an error. Then the connection may carry the
 * next operation. */
void conn_done(struct conn *c);
void conn_refuse(struct conn *c, const struct err *e);
/* Ends the operation with an error, and then the connection: data of the operation may follow,
 * which nobody reads. */
void conn_refuse_unread(struct conn *c, const struct err *e);
/* Buffers frames until conn_uncork, which sends them together, so that the last output of a call
 * and the call's end wake the reader only once. */
void conn_cork(struct conn *c);
void conn_uncork(struct conn *c);

/* Drops unsent bytes. The caller has copied them to a process that continues on this connection.
 */
void conn_hand_over(struct conn *c);
/* Returns true when the host closed the connection, even if no event has reported it yet. */
bool conn_is_broken(const struct conn *c);
/* Ends the connection without closing its socket, which the caller then owns. To be called
 * only when everything is sent. */
int conn_detach(struct conn *c);
/* Closes the connection now. */
void conn_drop(struct conn *c);
/* Frees closed connections; called between events. */
void conn_reap(void);

extern struct list conn_all; /* all struct conn, linked by `node` */

#endif
