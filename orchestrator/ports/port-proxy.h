// SPDX-License-Identifier: Apache-2.0
/* Requests to servers in sandboxes. */
#ifndef RAMET_ORCHESTRATOR_PORTS_PORT_PROXY_H
#define RAMET_ORCHESTRATOR_PORTS_PORT_PROXY_H

#include "orchestrator/http/dispatch.h"
#include "orchestrator/ports/port-answer.h"
#include "orchestrator/ports/port-target.h"

/* A request that is passed on to a server. */
struct port_proxy {
	struct port_target target; /* points into the request */
	bool by_share;		   /* admitted without a key, because the port is shared */
	bool gave_token;
	char owner[64]; /* tenant of the sandbox, if by_share */

	struct text head; /* of the request, until it is sent */
	bool is_head, upgrades;
	bool chunked;	/* the request's body is sent in chunks */
	bool body_over; /* all of it is sent, or the server takes no more */
	bool discards;	/* the server takes no more of the body: the rest is read and dropped */
	size_t body_at; /* of a body that is in memory: bytes sent */

	struct text in; /* start of the answer, until its head is complete */
	struct port_answer answer;
	size_t interim; /* bytes of heads before it, like 100 Continue */
	bool answering; /* the head is complete */
};

/* Returns the state of a request that is passed on. */
static inline struct port_proxy *proxy_of(const struct request *r)
{
	return r->state;
}

/* --- port-guard.c --------------------------------------------------------------------------- */

/* Returns whether the request is for a server in a sandbox. If so, finds out whether it is admitted
 * because the port is shared; then the tenant is set. */
bool port_identify(struct request *r);
enum port_token port_token(const struct request *r);
/* Returns false, with an answer given, when the request may not reach the server. */
bool port_admits(struct request *r);
/* Returns whether a request is for a server in a sandbox. */
bool port_is_for(const h2o_req_t *req, const struct config *config);

/* --- port-proxy.c --------------------------------------------------------------------------- */

void serve_port_proxy(struct request *r);
void serve_port_tcp(struct request *r);
void port_proxy_free(struct request *r);

/* --- port-tunnel.c -------------------------------------------------------------------------- */

/* Answers 101 and connects the client's connection to r->op, whose `ended` was not called yet.
 * `first`: bytes of the server that were received already. */
void port_tunnel_begin(struct request *r, const void *first, size_t len);
/* Closes the tunnels whose keys were revoked, and those whose clients do not read the rest; `all`:
 * all of them. */
void port_tunnels_cut(struct http *h, bool all);

#endif
