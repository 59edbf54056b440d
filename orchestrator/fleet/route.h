// SPDX-License-Identifier: Apache-2.0
/* Which host serves requests for an id, by the id and the table alone. */
#ifndef RAMET_ORCHESTRATOR_FLEET_ROUTE_H
#define RAMET_ORCHESTRATOR_FLEET_ROUTE_H

#include "orchestrator/fleet/id.h"
#include "orchestrator/fleet/table.h"

#define FLEET_DEAD_AFTER_S 600 /* a host that is gone for longer counts as lost, with its VMs */

enum fleet_route {
	FLEET_HERE,    /* this host's, or the id does not say: this host's catalogue decides */
	FLEET_PEER,    /* another host of the table */
	FLEET_UNKNOWN, /* the id names a host of this cell that is not, or no longer, in the table
			*/
};

/* Finds the host that made an id. For FLEET_PEER, sets *peer, also to a host that the table calls
 * gone, since it may be reached nevertheless. */
enum fleet_route fleet_route(const struct fleet_table *t, const struct fleet_keys *keys,
			     const char *id, size_t len, const struct fleet_host **peer);
/* Returns whether a host that cannot be reached counts as lost. `now`: seconds since the epoch. */
bool fleet_is_lost(const struct fleet_host *h, int64_t now);

#endif
