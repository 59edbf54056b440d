// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/sandbox/drain.h"

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/sandbox/service.h"

void service_drain(struct service *c, bool on, int64_t deadline_at_ms)
{
	const int64_t left_ms = deadline_at_ms - realtime_ms();

	if (on == c->drain.on && deadline_at_ms == c->drain.deadline_at_ms)
		return;
	if (on)
		log_info("this host is drained: %zu sandboxes are left", c->n_sandboxes);
	else
		log_info("this host is not drained any more");
	c->drain = (struct drain){.on = on, .deadline_at_ms = deadline_at_ms};
	if (deadline_at_ms)
		c->drain.deadline_ms = boottime_ms() + (left_ms > 0 ? (uint64_t)left_ms : 0);
	sandboxes_set_timers(c);
}

bool drain_allows(const struct service *c, struct failure *f)
{
	if (c->drain.on)
		failure_set(f, FAIL_DRAINING, 5, "this host is drained: it gets no new sandboxes");
	return !c->drain.on;
}
