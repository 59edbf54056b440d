// SPDX-License-Identifier: Apache-2.0
/* Requests to servers in sandboxes. */
#ifndef RAMET_ORCHESTRATOR_PORTS_PORT_PROXY_H
#define RAMET_ORCHESTRATOR_PORTS_PORT_PROXY_H

#include "orchestrator/http/dispatch.h"
#include "orchestrator/ports/port-target.h"
#include "orchestrator/ports/relay.h"

/* A request that is passed on to a server. */
struct port_proxy {
	struct relay relay;
	struct port_target target; /* points into the request */
	bool by_share;		   /* admitted without a key, because the port is shared */
	bool gave_token;
	char owner[64]; /* tenant of the sandbox, if by_share */
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

#endif
