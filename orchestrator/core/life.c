// SPDX-License-Identifier: Apache-2.0
/* Tells what becomes of sandboxes to who keeps account of it. */
#include "orchestrator/core/internal.h"

void core_watch_lives(struct core *c, core_life_fn *fn, void *arg)
{
	c->life_fn = fn;
	c->life_arg = arg;
}

void life_tell(const struct sandbox *s, enum life_event event, const char *other, const char *space,
	       const char *text)
{
	const struct life life = {
		.event = event,
		.at_ms = realtime_ms(),
		.tenant = s->tenant,
		.sandbox = s->id,
		.template = s->template,
		.other = other,
		.space = space,
		.text = text,
	};

	if (s->core->life_fn)
		s->core->life_fn(s->core->life_arg, &life);
}
