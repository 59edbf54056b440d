// SPDX-License-Identifier: Apache-2.0
/* The state of ports/ for each sandbox, each tenant and the service. */
#ifndef RAMET_ORCHESTRATOR_PORTS_STATE_H
#define RAMET_ORCHESTRATOR_PORTS_STATE_H

#include "base/list.h"
#include "orchestrator/ports/ports.h"
#include "orchestrator/sandbox/part.h"

struct ports_sandbox {
	struct port_share *shares; /* by port */
	size_t n_shares;
	struct list tunnels; /* connections that have not ended */
	unsigned n_tunnels;
	size_t visits; /* tunnels to shared ports that a share gives access to */
};
struct ports_tenant {
	size_t tunnels, visits;
};
struct ports_service {
	size_t tunnels;	    /* open now */
	struct list visits; /* the open tunnels that a share gives access to */
	size_t n_visits;
	uint64_t connects, failures;		  /* counters */
	uint64_t bytes_to_guest, bytes_to_client; /* counters */
};
extern struct part ports_part;
static inline struct ports_sandbox *ports_of(const struct sandbox *s)
{
	return part_of_sandbox(&ports_part, s);
}
static inline struct ports_tenant *ports_of_tenant(const struct tenant *t)
{
	return part_of_tenant(&ports_part, t);
}
static inline struct ports_service *ports_of_service(const struct service *c)
{
	return part_of_service(&ports_part, c);
}

#endif
