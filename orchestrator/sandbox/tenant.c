// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/sandbox/tenant.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/num.h"
#include "orchestrator/store/keys.h"

/* seconds; a sandbox may end at any time, but most live for minutes */
#define CAP_RETRY_S 10
/* Most waits of one operation for the keeper. Others may be quicker to take what was granted. */
#define WAITS 5

/* --- the object ------------------------------------------------------------------------------ */

struct tenant *tenant_find(const struct service *c, const char *name)
{
	list_each_of (t, struct tenant, bucket, &c->tenant_buckets[bucket_number(name)])
		if (!strcmp(t->name, name))
			return t;
	return NULL;
}

struct tenant *tenant_hold(struct tenant *t)
{
	t->users++;
	return t;
}

struct tenant *tenant_get(struct service *c, const char *name)
{
	struct tenant *t = tenant_find(c, name);

	if (t)
		return tenant_hold(t);
	t = must_alloc(c->sizes.tenant + strlen(name) + 1);
	t->name = (char *)t + c->sizes.tenant;
	t->service = c;
	t->users = 1;
	strcpy(t->name, name);
	list_add_tail(&c->tenants, &t->link);
	list_add_tail(&c->tenant_buckets[bucket_number(name)], &t->bucket);
	return t;
}

void tenant_put(struct tenant *t)
{
	if (!t || --t->users)
		return;
	list_del(&t->link);
	list_del(&t->bucket);
	free(t);
}

/* --- limits ---------------------------------------------------------------------------------- */

bool tenants_limited(const struct service *c)
{
	return keys_any(c->keys);
}

bool tenant_tier(const struct service *c, const char *tenant, struct tier *out)
{
	const char *name = keys_tier(c->keys, tenant);

	if (!name || tier_is_operators(name))
		return false;
	/* If the key names a tier that this version does not know, use the lowest one. */
	return tier_find(out, &c->config, name) || tier_find(out, &c->config, "free");
}

struct size tenant_size_most(const struct service *c, const char *tenant)
{
	struct tier tier;

	if (!tenant_tier(c, tenant, &tier))
		return (struct size){UINT32_MAX, UINT32_MAX, UINT32_MAX};
	return size_of_tier(&tier);
}

void tenant_clamp(const struct service *c, const char *tenant, struct sandbox_config *config)
{
	struct tier tier;

	if (!config->timeout_s)
		config->timeout_s = c->config.timeout_s;
	if (!config->idle_timeout_s)
		config->idle_timeout_s = c->config.idle_timeout_s;
	if (!tenant_tier(c, tenant, &tier))
		return;
	config->timeout_s = min_u32(config->timeout_s, tier.lifetime_s);
	config->idle_timeout_s = min_u32(config->idle_timeout_s, tier.idle_s);
	config->persistent = config->persistent && tier.persistent;
}

uint32_t tenant_lifetime_most(const struct service *c, const char *tenant)
{
	struct tier tier;

	return tenant_tier(c, tenant, &tier) ? tier.lifetime_s : UINT32_MAX;
}

bool tenant_is_private(const struct service *c, const char *tenant)
{
	struct tier tier;

	return tenant_tier(c, tenant, &tier) && tier.private_memory;
}

/* --- counts ----------------------------------------------------------------------------------- */

size_t tenant_sandboxes(const struct service *c, const char *tenant)
{
	const struct tenant *t = tenant_find(c, tenant);

	return t ? t->sandboxes.n + t->coming : 0;
}

uint32_t tenant_limit(const struct tier *tier, enum tenant_limit limit)
{
	switch (limit) {
	case TENANT_SANDBOXES:
		return tier->concurrent;
	case TENANT_DISKS_GB:
		return tier->disks_gb;
	case TENANT_CHECKPOINTS:
		return tier->checkpoints;
	default:
		return (uint32_t)(((uint64_t)tier->spaces_gb << 30) / SPACES_UNIT);
	}
}

static uint64_t space_units(uint64_t bytes)
{
	return bytes / SPACES_UNIT + (bytes % SPACES_UNIT != 0);
}

uint64_t tenant_used(const struct tenant *t, enum tenant_limit limit)
{
	switch (limit) {
	case TENANT_SANDBOXES:
		return t->sandboxes.n + t->coming;
	case TENANT_DISKS_GB:
		return t->promised_gb + t->coming_gb;
	case TENANT_CHECKPOINTS:
		return t->checkpoints;
	default:
		return space_units(t->spaces_bytes + t->coming_bytes);
	}
}

/* Returns whether `n` more units of the limit are too many for this host. */
static bool exceeds(const struct service *c, const struct tenant *t, const struct tier *tier,
		    enum tenant_limit limit, uint64_t n)
{
	const uint64_t used = (t ? tenant_used(t, limit) : 0) + n;
	uint32_t most = tenant_limit(tier, limit);

	if (c->member)
		most = t && boottime_ms() < t->allowed_until_ms ? min_u32(t->allowed[limit], most)
								: 0;
	return used > most;
}

/* Says in *f, which is filled in, that other hosts of the fleet may help. */
static void note_lack(const struct service *c, enum tenant_limit limit, uint64_t n,
		      struct failure *f)
{
	if (!c->member)
		return;
	f->lacks = min_u32(n, UINT32_MAX);
	f->limit = limit;
}

bool tenant_has_room(const struct service *c, const char *tenant, size_t n, struct failure *f)
{
	const struct tenant *t = tenant_find(c, tenant);
	struct tier tier;

	if (!tenant_tier(c, tenant, &tier) || !exceeds(c, t, &tier, TENANT_SANDBOXES, n))
		return true;
	failure_set(f, FAIL_CAP_REACHED, CAP_RETRY_S,
		    "there are %zu sandboxes of this key%s, and %zu more would exceed its limit of "
		    "%u at one time%s",
		    tenant_sandboxes(c, tenant), c->member ? " on this host" : "", n,
		    tier.concurrent, c->member ? " in the whole fleet" : "");
	note_lack(c, TENANT_SANDBOXES, n, f);
	return false;
}

bool tenant_has_disk(const struct service *c, const char *tenant, uint64_t gb, struct failure *f)
{
	const struct tenant *t = tenant_find(c, tenant);
	struct tier tier;

	if (!tenant_tier(c, tenant, &tier) || !exceeds(c, t, &tier, TENANT_DISKS_GB, gb))
		return true;
	failure_set(f, FAIL_CAP_REACHED, CAP_RETRY_S,
		    "the disks of this key's sandboxes%s have %llu GB, and %llu GB more would "
		    "exceed its limit of %u GB%s",
		    c->member ? " on this host" : "",
		    (unsigned long long)(t ? tenant_used(t, TENANT_DISKS_GB) : 0),
		    (unsigned long long)gb, tier.disks_gb, c->member ? " in the whole fleet" : "");
	note_lack(c, TENANT_DISKS_GB, gb, f);
	return false;
}

/* Returns what to do when no more checkpoints are allowed. `full`: this host alone has all that the
 * limit permits. If not, the keeper may only be away, and no checkpoint need be deleted. */
static const char *advice(const struct tier *tier, bool full)
{
	if (!tier->checkpoints)
		return ": its tier permits none";
	return full ? ": delete or prune some" : "";
}

bool tenant_has_checkpoint(const struct tenant *t, struct failure *f)
{
	const struct service *c = t->service;
	struct tier tier;

	if (!tenant_tier(c, t->name, &tier) || !exceeds(c, t, &tier, TENANT_CHECKPOINTS, 1))
		return true;
	const bool full = t->checkpoints >= tier.checkpoints;
	failure_set(f, FAIL_CAP_REACHED, 0,
		    "there are %zu checkpoints of this key%s, and its limit is %u%s%s",
		    t->checkpoints, c->member ? " on this host" : "", tier.checkpoints,
		    c->member ? " in the whole fleet" : "", advice(&tier, full));
	if (!full)
		note_lack(c, TENANT_CHECKPOINTS, 1, f);
	return false;
}

bool tenant_checkpoints_fit(const struct tenant *t)
{
	struct tier tier;

	return !tenant_tier(t->service, t->name, &tier) ||
	       !exceeds(t->service, t, &tier, TENANT_CHECKPOINTS, 0);
}

static void say_no_space(const struct tenant *t, uint64_t bytes, uint64_t most, const char *what,
			 struct failure *f)
{
	const unsigned long long mib = most >> 20, taken = (t->spaces_bytes + bytes) >> 20;

	if (t->service->member)
		failure_set(f, FAIL_QUOTA_REACHED, 0,
			    "%s: with it, this key's spaces would pass the limit of %llu MiB in "
			    "the whole fleet",
			    what, mib);
	else
		failure_set(f, FAIL_QUOTA_REACHED, 0,
			    "%s: with it, the spaces and checkpoints of this key would take %llu "
			    "MiB of the disk, the limit is %llu MiB",
			    what, taken, mib);
}

/* Returns how many units of the limit are lacking on this host of a fleet for `bytes` more. */
static uint64_t space_lacks(const struct tenant *t, uint64_t bytes)
{
	const uint64_t after = space_units(t->spaces_bytes + t->coming_bytes + bytes);
	struct tier tier;

	if (!t->service->member || !tenant_tier(t->service, t->name, &tier))
		return 0;
	const uint64_t more = after - tenant_used(t, TENANT_SPACES);
	return exceeds(t->service, t, &tier, TENANT_SPACES, more) ? (more ? more : 1) : 0;
}

bool tenant_has_space(const struct tenant *t, uint64_t bytes, const char *what, struct failure *f)
{
	const uint64_t most = tenant_spaces_bytes(t->service, t->name);
	const bool here = bytes <= most && t->spaces_bytes <= most - bytes;
	const uint64_t lacks = here ? space_lacks(t, bytes) : 0;

	if (here && !lacks)
		return true;
	say_no_space(t, bytes, most, what, f);
	if (lacks)
		note_lack(t->service, TENANT_SPACES, lacks, f);
	return false;
}

bool tenant_share(const struct service *c, size_t total, size_t own, size_t most)
{
	return keys_any(c->keys) ? fair_share(total, own, most) : total < most;
}

bool tenant_may_begin(const struct service *c, const char *what, size_t total, size_t own,
		      size_t most, struct failure *f)
{
	if (total >= most)
		failure_set(f, FAIL_SERVICE_BUSY, 1,
			    "the host's limit of %zu %s at a time is reached", most, what);
	else if (!tenant_share(c, total, own, most))
		failure_set(
			f, FAIL_TOO_MANY, 1,
			"%zu %s are in progress on this host, %zu of them of this tenant; above "
			"half of the limit of %zu, a tenant may have an eighth of it",
			total, what, own, most);
	else
		return true;
	return false;
}

uint64_t tenant_spaces_bytes(const struct service *c, const char *tenant)
{
	struct tier tier;

	return tenant_tier(c, tenant, &tier) ? (uint64_t)tier.spaces_gb << 30 : UINT64_MAX;
}

/* --- waiting for the keeper ------------------------------------------------------------------ */

static void report(void *arg)
{
	struct tenant_wait *w = arg;

	w->fn(w->arg, w->refused ? &w->lack : NULL);
}

bool tenant_wait_for(struct tenant_wait *w, struct tenant *t, struct failure *f,
		     service_done_fn *fn, void *arg)
{
	const struct service *c = t->service;

	if (f->lacks && c->ask_keeper && w->times++ < WAITS) {
		w->lack = *f;
		w->asked = w->refused = false;
		w->fn = fn;
		w->arg = arg;
		if (c->ask_keeper(c->ask_keeper_arg, t, w))
			return true;
	}
	f->lacks = 0;
	return false;
}

void tenant_wait_finish(struct tenant_wait *w, struct service *c, const struct failure *f)
{
	list_del(&w->link);
	w->refused = f != NULL;
	if (f)
		w->lack = *f;
	deferred_run(&c->deferred, &w->deferred, report, w);
}

void tenant_wait_end(struct tenant_wait *w)
{
	list_del(&w->link);
	deferred_cancel(&w->deferred);
}
