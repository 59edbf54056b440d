// SPDX-License-Identifier: Apache-2.0
/* Changes the settings of a living sandbox: first in the catalogue, then in memory. */
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/tenant.h"

/* The end of a sandbox's lifetime, by both clocks; see struct sandbox. */
struct expiry {
	uint64_t boottime_ms;
	int64_t at_ms;
};

/* Returns the end of a lifetime of `timeout_s` more seconds. The tenant's limit counts from the
 * creation. It shortens no lifetime that the sandbox has already. */
static struct expiry expiry_in(const struct sandbox *s, uint32_t timeout_s)
{
	uint64_t lifetime_ms = timeout_s * 1000ull, end = boottime_ms() + lifetime_ms;

	if (!s->expires_ms)
		return (struct expiry){end, realtime_ms() + (int64_t)lifetime_ms};
	/* Negative after a boot of the host since the creation. */
	int64_t created_ms = (int64_t)s->expires_ms - (s->expires_at_ms - s->created_at_ms);
	int64_t last = created_ms + tenant_lifetime_most(s->service, s->tenant) * 1000ll;
	if (last < (int64_t)s->expires_ms)
		last = (int64_t)s->expires_ms;
	if ((int64_t)end > last)
		end = (uint64_t)last;
	/* The wall clock may have been set since the creation, so it is not read again. */
	return (struct expiry){end, s->expires_at_ms + (int64_t)(end - s->expires_ms)};
}

/* Returns the configuration after the change. The tenant's limits apply to the changed values
 * only: the others were allowed when the sandbox was created. */
static struct sandbox_config changed_config(const struct sandbox *s,
					    const struct sandbox_change *change)
{
	struct sandbox_config config = s->config, asked = s->config;

	asked.timeout_s = change->timeout_s;
	asked.idle_timeout_s = change->idle_timeout_s;
	asked.persistent = change->persistent == CHANGE_TRUE;
	tenant_clamp(s->service, s->tenant, &asked);
	if (change->timeout_s)
		config.timeout_s = asked.timeout_s;
	if (change->idle_timeout_s)
		config.idle_timeout_s = asked.idle_timeout_s;
	if (change->persistent != CHANGE_NONE)
		config.persistent = asked.persistent;
	if (change->egress == CHANGE_FALSE)
		config.egress = false;
	if (change->checkpoint_calls)
		config.checkpoint_calls = *change->checkpoint_calls;
	return config;
}

static void swap_text(char **a, char **b)
{
	char *was = *a;

	*a = *b;
	*b = was;
}

static bool apply(struct sandbox *s, const struct sandbox_change *change, struct failure *f)
{
	const struct sandbox_config config = changed_config(s, change);
	struct expiry expiry = {s->expires_ms, s->expires_at_ms};
	struct err e;

	if (change->egress == CHANGE_TRUE && !s->config.egress) {
		failure_set(f, FAIL_EGRESS_CLOSED, 0,
			    "the network access of sandbox %s is closed and can't be opened again",
			    s->id);
		return false;
	}
	scoped_free char *metadata = strdup(change->metadata ? change->metadata : s->metadata);
	scoped_free char *labels = strdup(change->labels ? change->labels : s->labels);
	if (!metadata || !labels)
		return failure_no_memory(f);
	if (change->timeout_s)
		expiry = expiry_in(s, config.timeout_s);
	const struct store_sandbox row = {.id = s->id,
					  .config = config,
					  .expires_at_ms = expiry.at_ms,
					  .metadata = metadata,
					  .score = change->score.given ? change->score : s->score,
					  .labels = labels};
	if (store_sandbox_change(s->service->store, &row, &e) < 0)
		return failure_catalogue(f, &e);
	swap_text(&s->metadata, &metadata);
	swap_text(&s->labels, &labels);
	s->score = row.score;
	s->config = config;
	s->expires_at_ms = expiry.at_ms;
	s->expires_ms = expiry.boottime_ms;
	sandbox_touch(s);
	sandbox_set_timers(s);
	return true;
}

struct op *service_change(struct service *c, const char *tenant, const char *id,
			  const struct sandbox_change *change, service_done_fn *fn, void *arg)
{
	struct op *op = op_new(c, &op_plain, arg);
	struct failure f;

	op->done_fn = fn;
	struct sandbox *s = sandbox_find_reached(c, tenant, id, &f);
	if (!s || !apply(s, change, &f)) {
		op_finish(op, &f);
	} else if (change->egress == CHANGE_FALSE) {
		list_add_tail(&s->changes, &op->link);
		sandbox_close_egress(s);
	} else {
		op_finish(op, NULL);
	}
	return op;
}
