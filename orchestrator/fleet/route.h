// SPDX-License-Identifier: Apache-2.0
/* Which host serves requests for an id. Nothing is looked up elsewhere. */
#ifndef RAMET_ORCHESTRATOR_FLEET_ROUTE_H
#define RAMET_ORCHESTRATOR_FLEET_ROUTE_H

#include "orchestrator/fleet/id.h"
#include "orchestrator/fleet/table.h"

#define FLEET_DEAD_AFTER_S 600 /* after which a host that is gone counts as lost, with its VMs */

enum fleet_route {
	FLEET_HERE,    /* this host, or nobody knows: its catalogue decides */
	FLEET_PEER,    /* another host of the table */
	FLEET_UNKNOWN, /* a host of this cell that is not in the table, perhaps not any more */
};

/* Finds the host that made an id. Sets *peer for FLEET_PEER: even a host that is gone, since it may
 * be reached nevertheless. */
enum fleet_route fleet_route(const struct fleet_table *t, const struct fleet_keys *keys,
			     const char *id, size_t len, const struct fleet_host **peer);
/* Returns whether a host that cannot be reached counts as lost. `now`: seconds since the epoch. */
bool fleet_is_lost(const struct fleet_host *h, int64_t now);

#endif
