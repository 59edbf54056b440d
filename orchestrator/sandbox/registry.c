// SPDX-License-Identifier: Apache-2.0
/* The lists of living sandboxes, of the service and of each tenant, and their counters; how a
 * sandbox begins to be one of them. */
#include <string.h>

#include "base/log.h"
#include "orchestrator/pool/vm-bringup.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"

void sandbox_enlist(struct sandbox *s, enum sandbox_state state)
{
	struct service *c = s->service;

	s->state = state;
	s->is_listed = true;
	s->listed.place.at_ms = s->created_at_ms;
	memcpy(s->listed.place.id, s->id, sizeof(s->id));
	list_add_tail(&c->sandboxes, &s->link);
	roster_add(&c->all, &s->listed);
	roster_add(&s->owner->sandboxes, &s->listed);
	tree_join(s);
	c->n_sandboxes++;
	c->n_in[state]++;
	c->promised_mib += s->config.size.ram_mib;
	s->owner->promised_mib += s->config.size.ram_mib;
	s->owner->promised_gb += s->config.size.rootfs_gb;
	promises_changed(c);
}

void sandbox_delist(struct sandbox *s)
{
	struct service *c = s->service;

	if (!s->is_listed)
		return;
	lineage_unlink(s);
	s->is_listed = false;
	roster_remove(&c->all, &s->listed);
	roster_remove(&s->owner->sandboxes, &s->listed);
	tree_leave(s);
	c->n_sandboxes--;
	c->n_in[s->state]--;
	c->promised_mib -= s->config.size.ram_mib;
	s->owner->promised_mib -= s->config.size.ram_mib;
	s->owner->promised_gb -= s->config.size.rootfs_gb;
	promises_changed(c);
}

void sandbox_begin(struct sandbox *s, struct ready_vm *ready)
{
	s->vm = ready->vm;
	struct agent *agent = ready->agent;
	*ready = (struct ready_vm){0};
	vmproc_set_owner(s->vm, &sandbox_vm_owner, s);
	vmproc_give_head_start(s->vm, SANDBOX_HEAD_START_MS);
	sandbox_index(s);
	sandbox_enlist(s, SBX_READY);
	lineage_link(s);
	RUN_PARTS(s->service, begun, s, agent);
	sandbox_start_timers(s);
	sandbox_touch(s);
	sandbox_schedule(s);
	log_info("sandbox %s: VM in slot %u, process %u", s->id, s->slot, s->pid);
}
