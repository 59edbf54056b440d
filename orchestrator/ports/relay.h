// SPDX-License-Identifier: Apache-2.0
/*
 * Passes a request on to another server over a connection of its own, and the answer back. Bodies
 * are passed on in both directions as they arrive, at most some 64 KiB at a time: the slower side
 * sets the pace. Trusts nothing in the answer.
 */
#ifndef RAMET_ORCHESTRATOR_PORTS_RELAY_H
#define RAMET_ORCHESTRATOR_PORTS_RELAY_H

#include "orchestrator/http/dispatch.h"
#include "orchestrator/ports/port-answer.h"
#include "orchestrator/ports/ports.h"

/* A kind of connection to another server. ports.h declares the one to servers in sandboxes. */
struct relay_link {
	bool (*send)(struct op *op, const void *data, size_t len); /* service_port_send */
	void (*end)(struct op *op);				   /* service_port_end */
	/* service_port_redirect */
	void (*redirect)(struct op *op, const struct port_sink *sink, void *arg);
	/* Keeps the connection, which is abandoned next, for another request. May be NULL. */
	void (*keep)(struct op *op);
	/* Adds header fields of the server's answer to the answer for the client. */
	void (*add_headers)(struct request *r);
	/* Fills in the sentence about an answer that is of no use: `why` continues "the answer of
	 * the server". */
	void (*complain)(const struct request *r, const char *why, struct failure *f);
};

/* First member of the request's state. */
struct relay {
	const struct relay_link *link;
	struct text head; /* of the request, until it is sent */
	bool is_head, upgrades;
	bool chunked;	/* the request's body is sent in chunks */
	bool body_over; /* all of it is sent, or the server takes no more */
	bool discards;	/* the server takes no more of the body: the rest is read and dropped */
	size_t body_at; /* bytes sent of a body that is in memory */

	struct text in; /* start of the answer, until its head is complete */
	struct port_answer answer;
	size_t interim; /* bytes of earlier heads, like 100 Continue */
	bool answering; /* the head is complete */
};

static inline struct relay *relay_of(const struct request *r)
{
	return r->state;
}

/* Fills in what follows from the client's request: fields, body and upgrade. The caller then writes
 * relay->head, and connects with relay_sink and r->op. */
void relay_ask(struct request *r, struct port_ask *ask);
/* Like relay_ask, for a request that has no relay: without body and upgrade. */
void relay_ask_head(struct request *r, struct port_ask *ask);
extern const struct port_sink relay_sink; /* its argument is the request */
void relay_free(struct request *r);	  /* request_ops.free */
/* Adds a header field whose name and value may end without a NUL. */
void relay_header(struct request *r, const char *name, size_t name_len, const char *value,
		  size_t len);

/* --- port-tunnel.c -------------------------------------------------------------------------- */

/* Answers 101 and connects the client's connection to r->op, whose `ended` was not called yet.
 * Uses only send, end and redirect of `link`. `first`: bytes of the server that were received
 * already. */
void port_tunnel_begin(struct request *r, const struct relay_link *link, const void *first,
		       size_t len);
/* Closes the tunnels whose keys were revoked, and those whose server has ended and whose client
 * does not read the server's last bytes; with `all`, closes all. */
void port_tunnels_cut(struct http *h, bool all);

#endif
