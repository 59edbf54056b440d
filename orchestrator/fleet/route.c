// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/fleet/route.h"

bool fleet_is_lost(const struct fleet_host *h, int64_t now)
{
	return h->gone && now - h->gone >= FLEET_DEAD_AFTER_S;
}

enum fleet_route fleet_route(const struct fleet_table *t, const struct fleet_keys *keys,
			     const char *id, size_t len, const struct fleet_host **peer)
{
	struct fleet_place at;

	*peer = NULL;
	if (!fleet_id_find_text(keys, id, len, &at) || at.cell != t->cell ||
	    at.host == t->self->number)
		return FLEET_HERE;
	*peer = fleet_table_host(t, at.host);
	return *peer ? FLEET_PEER : FLEET_UNKNOWN;
}
