// SPDX-License-Identifier: Apache-2.0
/* Which host serves requests for an id. Nothing is looked up elsewhere. */
#ifndef RAMET_ORCHESTRATOR_FLEET_ROUTE_H
#define RAMET_ORCHESTRATOR_FLEET_ROUTE_H

#include "orchestrator/fleet/id.h"
#include "orchestrator/fleet/table.h"

#define FLEET_DEAD_AFTER_S 600 /* after which a host that is gone counts as lost, with its VMs */

enum fleet_route {
	FLEET_HERE, /* this host, or nobody knows: its catalogue decides */
	FLEET_PEER, /* the host at *peer */
	FLEET_LOST, /* the host at *peer, which is lost; *peer NULL: it is not in the table any more
		     */
};

/* `now`: seconds since the epoch. */
enum fleet_route fleet_route(const struct fleet_table *t, const struct fleet_keys *keys,
			     const char *id, size_t len, int64_t now,
			     const struct fleet_host **peer, uint32_t *number);
/* Returns whether the host, which cannot be reached, counts as lost. */
bool fleet_is_lost(const struct fleet_host *h, int64_t now);

#endif
