// SPDX-License-Identifier: Apache-2.0
/*
 * What a tenant may have: the limits of its key's tier. The tenant without a key, and those of
 * operators' keys, have none but the host's.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_TENANT_H
#define RAMET_ORCHESTRATOR_CORE_TENANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "orchestrator/core/core.h"
#include "orchestrator/core/roster.h"

struct size;
struct tier;

/* A tenant, its sandboxes and counters; it lives for as long as somebody holds it. */
struct tenant {
	struct list bucket; /* by name */
	struct list link;   /* on core->tenants */
	struct core *core;
	unsigned users;
	struct roster sandboxes; /* that live */
	struct roster spaces;
	uint64_t spaces_bytes;
	uint64_t promised_mib; /* the RAM of its sandboxes, */
	uint64_t promised_gb;  /* and their disks */
	size_t coming;	       /* sandboxes on their way, */
	uint64_t coming_gb;    /* and their disks */
	size_t waiting_bytes;  /* of its calls that no guest has taken yet */
	size_t operations, listeners;
	struct output_account *output;
	struct list freezes;	 /* struct freeze: that wait, in order */
	struct list freeze_turn; /* on core->freeze_turns while any waits */
	unsigned freezing;	 /* under way */
	char name[];
};
/* Makes it known when it is new. */
struct tenant *tenant_get(struct core *c, const char *name);
struct tenant *tenant_hold(struct tenant *t);
void tenant_put(struct tenant *t);
/* NULL: it has nothing. */
struct tenant *tenant_find(const struct core *c, const char *name);

/* The limits of the tenant's key; false: it has none. */
bool tenant_tier(const struct core *c, const char *tenant, struct tier *out);
/* The most of each that a sandbox may have; UINT32_MAX: no limit. RAM is a multiple of what sizes
 * are rounded to. */
struct size tenant_size_most(const struct core *c, const char *tenant);
/* Fills in the configured defaults (of 0) and cuts what is more than the tenant may have. */
void tenant_clamp(const struct core *c, const char *tenant, uint32_t *timeout_s,
		  uint32_t *idle_timeout_s, bool *persistent);
/* Living sandboxes of the tenant and those on their way (core_call.coming). */
size_t tenant_sandboxes(const struct core *c, const char *tenant);
/* `n` more would be within its limit; else *f is the 429. */
bool tenant_has_room(const struct core *c, const char *tenant, size_t n, struct failure *f);
/* Sandboxes with disks of `gb` in all would be within its limit; else *f is the 429. */
bool tenant_has_disk(const struct core *c, const char *tenant, uint64_t gb, struct failure *f);
/* Whether there is one more of what the host has `most` of, `total` of them taken. With keys, half
 * is for whoever comes first; the rest is for tenants that have less than an eighth themselves. */
bool tenant_share(const struct core *c, size_t total, size_t own, size_t most);
/* Bytes that all Spaces of the tenant may take on the disk; UINT64_MAX: no limit. */
uint64_t tenant_spaces_bytes(const struct core *c, const char *tenant);

#endif
