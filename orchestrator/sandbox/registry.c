// SPDX-License-Identifier: Apache-2.0
/* The lists of living sandboxes, of the service and of each tenant, and their counters. */
#include <string.h>

#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/sandbox/tenant.h"

void sandbox_enlist(struct sandbox *s, enum sandbox_state state)
{
	struct core *c = s->core;

	s->state = state;
	s->is_listed = true;
	s->listed.place.at_ms = s->created_at_ms;
	memcpy(s->listed.place.id, s->id, sizeof(s->id));
	list_add_tail(&c->sandboxes, &s->link);
	roster_add(&c->all, &s->listed);
	roster_add(&s->owner->sandboxes, &s->listed);
	c->n_sandboxes++;
	c->n_in[state]++;
	c->promised_mib += s->config.size.ram_mib;
	s->owner->promised_mib += s->config.size.ram_mib;
	s->owner->promised_gb += s->config.size.rootfs_gb;
	promises_changed(c);
}

void sandbox_delist(struct sandbox *s)
{
	struct core *c = s->core;

	if (!s->is_listed)
		return;
	lineage_unlink(s);
	s->is_listed = false;
	roster_remove(&c->all, &s->listed);
	roster_remove(&s->owner->sandboxes, &s->listed);
	c->n_sandboxes--;
	c->n_in[s->state]--;
	c->promised_mib -= s->config.size.ram_mib;
	s->owner->promised_mib -= s->config.size.ram_mib;
	s->owner->promised_gb -= s->config.size.rootfs_gb;
	promises_changed(c);
}
