// SPDX-License-Identifier: Apache-2.0
/*
 * Tenants and their limits, which come from the tier of their key. The tenant without a key and the
 * tenants of operators' keys have only the host's limits.
 *
 * In a fleet, some limits hold for all hosts together: this host has an allowance of each
 * (orchestrator/fleet/slots.h), and a failure with `lacks` says that it needs more.
 */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_TENANT_H
#define RAMET_ORCHESTRATOR_SANDBOX_TENANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "orchestrator/config/tiers.h"
#include "orchestrator/io/deferred.h"
#include "orchestrator/sandbox/service.h"

struct allowance;

/* Limits that hold for all hosts of a fleet together. */
enum tenant_limit {
	TENANT_SANDBOXES,
	TENANT_DISKS_GB,
	TENANT_CHECKPOINTS,
	TENANT_SPACES, /* size of Spaces and checkpoints, in units of SPACES_UNIT */
	TENANT_LIMITS
};
#define SPACES_UNIT (16ull << 20) /* bytes; a host rounds up what a tenant has there */

/* A tenant with its sandboxes and counters; reference-counted by `users`. */
struct tenant {
	struct list bucket; /* keyed by name */
	struct list link;   /* on service->tenants */
	struct service *service;
	unsigned users;
	struct roster sandboxes; /* living ones */
	uint64_t promised_mib;	 /* RAM of its sandboxes */
	uint64_t promised_gb;	 /* disks of its sandboxes */
	size_t coming;		 /* sandboxes being made */
	uint64_t coming_gb;	 /* disks of sandboxes being made */
	size_t checkpoints;	 /* including those being taken */
	uint64_t spaces_bytes;	 /* of Spaces and checkpoints */
	uint64_t coming_bytes;	 /* at most, of Spaces being written */
	/* In a fleet: the state of orchestrator/peers for the tenant, or NULL. */
	struct allowance *allowance;
	uint32_t allowed[TENANT_LIMITS]; /* in a fleet: how much of each limit this host may use */
	uint64_t allowed_until_ms;	 /* until when `allowed` holds; boottime_ms() */
	bool keeper_away;		 /* in a fleet: this host can get no more of the limits */
	char *name;			 /* in the same block of memory */
};
/* Returns the tenant of this name, and creates it if nobody holds it. tenant_put releases the
 * reference that tenant_get or tenant_hold returns. */
struct tenant *tenant_get(struct service *c, const char *name);
struct tenant *tenant_hold(struct tenant *t);
void tenant_put(struct tenant *t);
/* Returns NULL when nobody holds the tenant. Takes no reference. */
struct tenant *tenant_find(const struct service *c, const char *name);

/* Returns false when no tenant has limits, since there are no keys. */
bool tenants_limited(const struct service *c);
/* Fills in the limits of the tenant's key. Returns false when it has none. */
bool tenant_tier(const struct service *c, const char *tenant, struct tier *out);
/* Returns the largest sandbox size the tenant may have; UINT32_MAX: no limit. RAM is rounded to
 * RAM_STEP_MIB. */
struct size tenant_size_most(const struct service *c, const char *tenant);
/* Replaces timeouts of 0 by the configured defaults, then reduces the timeouts and `persistent` to
 * the tenant's limits. */
void tenant_clamp(const struct service *c, const char *tenant, struct sandbox_config *config);
/* Returns the longest lifetime in seconds of a sandbox of the tenant; UINT32_MAX: no limit. */
uint32_t tenant_lifetime_most(const struct service *c, const char *tenant);
/* Returns whether the tenant's VMs must not map memory files of others. */
bool tenant_is_private(const struct service *c, const char *tenant);
/* Returns the limit of the tier for all hosts, and how much of it this host's sandboxes use. */
uint32_t tenant_limit(const struct tier *tier, enum tenant_limit limit);
uint64_t tenant_used(const struct tenant *t, enum tenant_limit limit);
/* Returns the number of the tenant's sandboxes, living or being made (op.coming). */
size_t tenant_sandboxes(const struct service *c, const char *tenant);
/* Returns true when `n` more sandboxes are within the limit; else fills in *f with
 * FAIL_CAP_REACHED and returns false. */
bool tenant_has_room(const struct service *c, const char *tenant, size_t n, struct failure *f);
/* Returns true when disks of `gb` more in total are within the limit; else fills in *f with
 * FAIL_CAP_REACHED and returns false. */
bool tenant_has_disk(const struct service *c, const char *tenant, uint64_t gb, struct failure *f);
/* Returns whether a tenant that has `own` units of a resource of the host may take one more. All
 * tenants together have `total`, and the host has `most`. With API keys, fair_share (base/num.h)
 * decides. */
bool tenant_share(const struct service *c, size_t total, size_t own, size_t most);
/* Like tenant_share, for something that the host does at most `most` times at once. If it returns
 * false, *f names that thing as `what`, a plural. */
bool tenant_may_begin(const struct service *c, const char *what, size_t total, size_t own,
		      size_t most, struct failure *f);
/* Returns true when one more checkpoint is within the limit; else fills in *f with FAIL_CAP_REACHED
 * and returns false. */
bool tenant_has_checkpoint(const struct tenant *t, struct failure *f);
/* Returns whether the tenant's checkpoints here are within the limit, or this host's part of it. */
bool tenant_checkpoints_fit(const struct tenant *t);
/* Returns true when Spaces and checkpoints of `bytes` more are within the limit; else fills in *f
 * with FAIL_QUOTA_REACHED and returns false. `what`: the subject and predicate of *f's sentence. */
bool tenant_has_space(const struct tenant *t, uint64_t bytes, const char *what, struct failure *f);
/* Returns how many bytes all Spaces and checkpoints of the tenant may take on disk; UINT64_MAX: no
 * limit. */
uint64_t tenant_spaces_bytes(const struct service *c, const char *tenant);

/* The wait of an operation that needs more of a limit than this host's allowance in a fleet. It
 * lasts until orchestrator/peers has asked the tenant's keeper for more, and ends it. Embedded in
 * its owner; zeroed before first use. */
struct tenant_wait {
	struct list link;	  /* on a list of orchestrator/peers, which also sets `asked` */
	struct deferred deferred; /* reports the end */
	struct failure lack;
	bool asked, refused;
	unsigned times;
	service_done_fn *fn;
	void *arg;
};
/* Begins to wait if that may help; else returns false, with f->lacks set to 0. `fn` is called
 * later: with NULL if there is more now, which others may take first, or else with the reason. */
bool tenant_wait_for(struct tenant_wait *w, struct tenant *t, struct failure *f,
		     service_done_fn *fn, void *arg);
/* Ends the wait and has `fn` called with `f`. */
void tenant_wait_finish(struct tenant_wait *w, struct service *c, const struct failure *f);
/* Ends the wait, if there is one, without a call of `fn`. */
void tenant_wait_end(struct tenant_wait *w);

#endif
