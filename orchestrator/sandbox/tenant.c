// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/sandbox/tenant.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "orchestrator/store/keys.h"

/* seconds; a sandbox may end at any time, but most live for minutes */
#define CAP_RETRY_S 10

/* --- the object ------------------------------------------------------------------------------ */

struct tenant *tenant_find(const struct service *c, const char *name)
{
	list_each (pos, &c->tenant_buckets[bucket_number(name)]) {
		struct tenant *t = container_of(pos, struct tenant, bucket);

		if (!strcmp(t->name, name))
			return t;
	}
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

bool tenant_has_room(const struct service *c, const char *tenant, size_t n, struct failure *f)
{
	struct tier tier;

	if (!tenant_tier(c, tenant, &tier))
		return true;
	size_t used = tenant_sandboxes(c, tenant);
	if (used + n <= tier.concurrent)
		return true;
	failure_set(
		f, FAIL_CAP_REACHED, CAP_RETRY_S,
		"there are %zu sandboxes of this key, and %zu more would exceed its limit of %u at "
		"one time",
		used, n, tier.concurrent);
	return false;
}

bool tenant_has_disk(const struct service *c, const char *tenant, uint64_t gb, struct failure *f)
{
	const struct tenant *t = tenant_find(c, tenant);
	uint64_t used = t ? t->promised_gb + t->coming_gb : 0;
	struct tier tier;

	if (!tenant_tier(c, tenant, &tier) || used + gb <= tier.disks_gb)
		return true;
	failure_set(
		f, FAIL_CAP_REACHED, CAP_RETRY_S,
		"the disks of this key's sandboxes have %llu GB, and %llu GB more would exceed its "
		"limit of %u GB",
		(unsigned long long)used, (unsigned long long)gb, tier.disks_gb);
	return false;
}

bool tenant_has_checkpoint(const struct service *c, const char *tenant, size_t n, struct failure *f)
{
	struct tier tier;

	if (!tenant_tier(c, tenant, &tier) || n < tier.checkpoints)
		return true;
	failure_set(f, FAIL_CAP_REACHED, 0,
		    "there are %zu checkpoints of this key, and its limit is %u: %s", n,
		    tier.checkpoints,
		    tier.checkpoints ? "delete or prune some" : "its tier permits none");
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
		failure_set(f, FAIL_TOO_MANY, 1,
			    "%zu of the host's %zu %s at a time are taken, %zu of them with this "
			    "key",
			    total, most, what, own);
	else
		return true;
	return false;
}

uint64_t tenant_spaces_bytes(const struct service *c, const char *tenant)
{
	struct tier tier;

	return tenant_tier(c, tenant, &tier) ? (uint64_t)tier.spaces_gb << 30 : UINT64_MAX;
}
