// SPDX-License-Identifier: Apache-2.0
/* Reports the events of sandboxes to the registered listener. */
#include "orchestrator/sandbox/life.h"

#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "orchestrator/sandbox/context.h"

void core_watch_lives(struct core *c, core_life_fn *fn, void *arg)
{
	c->life_fn = fn;
	c->life_arg = arg;
}

void life_notify(const struct sandbox *s, enum life_event event, const char *other,
		 const char *space, const char *text)
{
	const struct life life = {
		.event = event,
		.at_ms = realtime_ms(),
		.tenant = s->tenant,
		.sandbox = s->id,
		.template = s->config.template,
		.other = other,
		.space = space,
		.text = text,
	};

	if (s->core->life_fn)
		s->core->life_fn(s->core->life_arg, &life);
}

void life_notify_end(const struct sandbox *s)
{
	static const struct {
		const char *code;
		enum life_event event;
	} ends[] = {
		{"expired", LIFE_EXPIRED},
		{"deleted", LIFE_DELETED},
		{"stopped", LIFE_STOPPED},
		{"vm_died", LIFE_DIED},
	};

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (!strcmp(s->ended_code, ends[i].code))
			life_notify(s, ends[i].event, NULL, NULL, s->ended_text);
}
