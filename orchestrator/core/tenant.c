// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/core/tenant.h"

#include <string.h>

#include "base/num.h"
#include "orchestrator/core/internal.h"
#include "orchestrator/keys/keys.h"
#include "orchestrator/tiers.h"

/* A sandbox may end at any time, but most live for minutes. */
#define CAP_RETRY_S 10

bool tenant_tier(const struct core *c, const char *tenant, struct tier *out)
{
	const char *name = keys_tier(c->keys, tenant);

	if (!name || strcmp(name, TIER_OPERATOR) == 0)
		return false;
	/* A name of another version of this program: the least there is. */
	return tier_find(out, &c->config, name) || tier_find(out, &c->config, "free");
}

struct size tenant_size_most(const struct core *c, const char *tenant)
{
	struct tier tier;

	if (!tenant_tier(c, tenant, &tier))
		return (struct size){UINT32_MAX, UINT32_MAX, UINT32_MAX};
	return size_of_tier(&tier);
}

void tenant_clamp(const struct core *c, const char *tenant, uint32_t *timeout_s,
		  uint32_t *idle_timeout_s, bool *persistent)
{
	struct tier tier;

	if (!*timeout_s)
		*timeout_s = c->config.timeout_s;
	if (!*idle_timeout_s)
		*idle_timeout_s = c->config.idle_timeout_s;
	if (!tenant_tier(c, tenant, &tier))
		return;
	*timeout_s = min_u32(*timeout_s, tier.lifetime_s);
	*idle_timeout_s = min_u32(*idle_timeout_s, tier.idle_s);
	*persistent = *persistent && tier.persistent;
}

/* --- how many -------------------------------------------------------------------------------- */

static size_t coming(const struct list *calls, const char *tenant)
{
	size_t n = 0;

	list_each (pos, calls) {
		const struct core_call *call = container_of(pos, struct core_call, link);

		if (call->coming && strcmp(call->tenant, tenant) == 0)
			n += call->coming;
	}
	return n;
}

/* Forks of a sandbox are its own tenant's. */
size_t tenant_sandboxes(const struct core *c, const char *tenant)
{
	size_t n = coming(&c->creates, tenant) + coming(&c->resumes, tenant);

	list_each (pos, &c->sandboxes) {
		const struct sandbox *s = container_of(pos, struct sandbox, link);

		if (s->state < SBX_ENDING && strcmp(s->tenant, tenant) == 0)
			n += 1 + coming(&s->forks, tenant);
	}
	return n;
}

bool tenant_has_room(const struct core *c, const char *tenant, size_t n, struct failure *f)
{
	struct tier tier;

	if (!tenant_tier(c, tenant, &tier))
		return true;
	size_t used = tenant_sandboxes(c, tenant);
	if (used + n <= tier.concurrent)
		return true;
	failure_set(
		f, 429, "cap_reached", CAP_RETRY_S,
		"there are %zu sandboxes of this key, %zu more would be over its limit of %u at "
		"one time",
		used, n, tier.concurrent);
	return false;
}

bool tenant_share(const struct core *c, size_t total, size_t own, size_t most)
{
	if (total >= most)
		return false;
	return !keys_any(c->keys) || total < most / 2 || own < most / 8;
}

uint64_t tenant_spaces_bytes(const struct core *c, const char *tenant)
{
	struct tier tier;

	return tenant_tier(c, tenant, &tier) ? (uint64_t)tier.spaces_gb << 30 : UINT64_MAX;
}

struct keys *core_keys(struct core *c)
{
	return c->keys;
}
