// SPDX-License-Identifier: Apache-2.0
/*
 * Takes over what the previous instance of the service left: the sandboxes in the catalogue, whose
 * VMs are still running. Removes VM processes that have no sandbox in the catalogue: blank VMs,
 * warm sandboxes and VMs whose bring-up was not complete.
 */
#include "orchestrator/sandbox/adopt.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/elements.h"
#include "base/log.h"
#include "orchestrator/images/host.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/sandbox/ended.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/sandbox/tree.h"

/* Sets the sandbox's times from its row in the catalogue, by the wall clock. The `loaded` hook of
 * exec/ replaces them by those of the session journal. */
static void set_times(struct sandbox *s)
{
	int64_t left = s->expires_at_ms - realtime_ms();

	s->idle_since_ms = boottime_ms();
	s->expires_ms = s->expires_at_ms ? s->idle_since_ms + (left > 0 ? (uint64_t)left : 0) : 0;
}

static void on_row(void *arg, const struct store_sandbox *row)
{
	struct service *c = arg;
	struct sandbox *s = sandbox_new(c, row->id, row->tenant);

	s->config = row->config;
	s->created_at_ms = row->created_at_ms;
	s->expires_at_ms = row->expires_at_ms;
	s->slot = row->slot;
	s->pid = row->pid;
	memcpy(s->instance, row->instance, sizeof(s->instance));
	sandbox_set_env(s, row->env ? row->env : "", row->env_len);
	sandbox_set_text(&s->metadata, row->metadata);
	sandbox_set_text(&s->ancestors, row->ancestors);
	sandbox_set_text(&s->labels, row->labels);
	s->depth = row->depth;
	s->score = row->score;
	/* Continue after the reserved numbers: the previous instance may have used any of them. */
	s->seq = s->seq_reserved = row->seq_reserved;
	sandbox_index(s);
	if (row->ended_at_ms) {
		s->ended_at_ms = row->ended_at_ms;
		s->ended_code = life_end(row->ended_code)->code;
		snprintf(s->ended_text, sizeof(s->ended_text), "%s", row->ended_text);
		ended_keep(s);
		return;
	}
	s->tree = tree_get(c, s->owner, row->root);
	sandbox_enlist(s, SBX_ADOPTING);
	set_times(s);
	RUN_PARTS(c, loaded, s, row);
}

static void on_no_slot(void *arg)
{
	sandbox_end(arg, "vm_died", "its VM slot no longer exists", false);
}

static void adopt(struct sandbox *s)
{
	struct service *c = s->service;
	const struct vmproc_spec spec = size_vm_spec(&s->config.size, false);
	struct vmproc_id id = {.slot = s->slot, .pid = s->pid};

	memcpy(id.instance, s->instance, sizeof(id.instance));
	s->vm = vmproc_adopt(&c->vms, &id, &spec, &sandbox_vm_owner, s);
	if (!s->vm) {
		/* Ends the sandbox on the loop's next turn, since nobody listens to ends yet. */
		loop_timer_start(c->loop, &s->lifetime, on_no_slot, s, 0);
		return;
	}
	/* Egress is closed already, unless the host's packet filter rules were removed. */
	if (!s->config.egress)
		sandbox_close_egress(s);
	log_info("sandbox %s: took over its VM in slot %u, process %u", s->id, s->slot, s->pid);
	sandbox_start_timers(s);
}

static void on_emptied(void *arg, int error, uint64_t value, const char *text)
{
	if (error)
		log_error("VM slot %u, which is above max_vms, can't be emptied: %s",
			  (unsigned)(uintptr_t)arg, text);
}

static void empty_slot(struct service *c, uint32_t slot)
{
	struct warden_msg msg = {.type = WARDEN_RELEASE, .slot = slot};

	if (slot < c->vms.max_vms)
		vmproc_sweep(&c->vms, slot); /* refused for a slot that a sandbox occupies */
	else if (slot < WARDEN_SLOTS_MAX)
		warden_client_call(c->warden, &msg, on_emptied, (void *)(uintptr_t)slot);
}

void adopt_sweep(struct service *c)
{
	char path[CONFIG_PATH_MAX + 8], extra;
	struct dirent *entry;
	uint32_t slot;

	snprintf(path, sizeof(path), "%s/vm", c->config.run_dir);
	DIR *d = opendir(path);
	if (!d)
		return; /* the warden has not created a slot yet */
	while ((entry = readdir(d)))
		if (sscanf(entry->d_name, "%u%c", &slot, &extra) == 1)
			empty_slot(c, slot);
	closedir(d);
}

int adopt_all(struct service *c, struct err *e)
{
	int ret = ended_load(c, on_row, e);

	if (ret == 0)
		ret = store_sandboxes(c->store, on_row, c, e);
	if (ret < 0)
		return ret;
	list_each_of (s, struct sandbox, link, &c->sandboxes)
		lineage_link(s);
	list_each_of_safe (s, struct sandbox, link, &c->sandboxes)
		adopt(s);
	return 0;
}
