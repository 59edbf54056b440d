// SPDX-License-Identifier: Apache-2.0
/* This host's load, as the other hosts of its fleet are told. */
#include "orchestrator/fleet/load.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "orchestrator/images/host.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/service/service.h"
#include "orchestrator/service/upkeep.h"

#define ROOM_MS 1000 /* how long a measurement of memory and disk counts */

/* --- room ----------------------------------------------------------------------------------- */

static void measure(struct service *c)
{
	struct place_room *room = &upkeep_of(c)->load.room;
	const struct disk_found *disk = &upkeep_of(c)->disk.found;
	const uint64_t now_ms = loop_now_ms(c->loop);

	if (room->memory && now_ms - upkeep_of(c)->load.measured_ms < ROOM_MS)
		return;
	upkeep_of(c)->load.measured_ms = now_ms;
	promises_room(c, &room->memory_used, &room->memory);
	room->disk = max_u64(disk->total_bytes, 1); /* 0: not measured yet */
	room->disk_used = disk->total_bytes - min_u64(disk->free_bytes, disk->total_bytes);
}

static uint16_t used(struct service *c)
{
	struct place_room *room = &upkeep_of(c)->load.room;

	measure(c);
	room->vms = vmproc_host_usable(&c->vms);
	room->vms_used = c->n_sandboxes + c->ended.n_unrecorded + c->n_coming;
	return place_used(room);
}

/* --- kinds ---------------------------------------------------------------------------------- */

static void count_warm(void *arg, const struct template *t, uint32_t rootfs_gb, uint32_t n)
{
	struct place_load *load = arg;
	const struct size *size = template_size(t);
	const uint32_t kind =
		load_kind(template_source(t)->name, size->vcpus, size->ram_mib, rootfs_gb);

	load->warm[kind] = (uint8_t)min_u32(load->warm[kind] + n, UINT8_MAX);
}

/* Counts the warm sandboxes as taken by the creates that are about to take one. */
static void take_off(struct place_load *load, uint32_t n)
{
	for (size_t i = 0; i < PLACE_KINDS; i++)
		load->warm[i] -= min_u32(n, load->warm[i]);
}

struct named {
	const char *name;
	struct size size; /* the default size of its sandboxes; zeros: there is no such template */
};

static void find(void *arg, const struct template_view *v)
{
	struct named *named = arg;

	if (strcmp(v->name, named->name) == 0)
		named->size = v->size;
}

uint32_t service_kind(struct service *c, const char *tenant, const struct sandbox_config *asked)
{
	struct named named = {.name = asked->template[0] ? asked->template : TEMPLATE_DEFAULT};
	struct size host = size_host(), most = tenant_size_most(c, tenant);

	templates_list(c->templates, find, &named);
	if (!named.size.ram_mib || tenant_is_private(c, tenant))
		return LOAD_KIND_NONE;
	const struct size limit = size_limit(&host, &named.size, &most);
	const struct size size = size_exact(&asked->size, &named.size, &limit);
	return load_kind(named.name, size.vcpus, size.ram_mib, size.rootfs_gb);
}

/* --- the load ------------------------------------------------------------------------------- */

static bool is_closed(const struct service *c)
{
	return place_closed(&upkeep_of(c)->load.health, loop_now_ms(c->loop));
}

void service_load(struct service *c, struct place_load *load)
{
	*load = (struct place_load){
		.used = used(c),
		.closed = is_closed(c) || c->closing || c->drain.on,
	};
	const struct place_room *room = &upkeep_of(c)->load.room;
	load->sandboxes = (uint32_t)c->n_sandboxes;
	load->free_mib = (uint32_t)min_u64(room->memory - min_u64(room->memory_used, room->memory),
					   UINT32_MAX);
	pool_warm(c->pool, count_warm, load);
	take_off(load, creates_choosing(c));
}

uint32_t service_cap(const struct service *c, const char *tenant)
{
	struct tier tier;

	return tenant_tier(c, tenant, &tier) ? tier.concurrent : 0;
}

void load_made(void *arg, bool well)
{
	struct service *c = arg;
	struct place_health *health = &upkeep_of(c)->load.health;
	const bool was_closed = is_closed(c);

	if (!c->member)
		return;
	place_result(health, well, loop_now_ms(c->loop));
	if (!was_closed && is_closed(c))
		log_error("%u sandboxes in a row could not be made: new ones are made on other "
			  "hosts for %u s",
			  health->failed, health->wait_ms / 1000);
}

const char *load_error(const struct service *c, char *text, size_t size)
{
	const struct place_health *health = &upkeep_of(c)->load.health;

	if (!c->member || !is_closed(c))
		return NULL;
	snprintf(text, size,
		 "%u sandboxes in a row could not be made: the next one is tried in %llu s",
		 health->failed,
		 (unsigned long long)(health->open_ms - loop_now_ms(c->loop) + 999) / 1000);
	return text;
}
