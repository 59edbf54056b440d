// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/sandbox/life.h"

#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "orchestrator/sandbox/service.h"

void life_note(const struct sandbox *s, struct audit_event event)
{
	event.at_ms = realtime_ms();
	event.tenant = s->tenant;
	event.sandbox = s->id;
	event.template = s->config.template;
	store_event(s->service->store, &event);
}

void life_note_end(const struct sandbox *s)
{
	static const struct {
		const char *code, *event;
	} ends[] = {
		{"expired", "sandbox.expired"},	      {"deleted", "sandbox.deleted"},
		{"stopped", "sandbox.stopped"},	      {"vm_died", "sandbox.died"},
		{"tree_limit", "sandbox.tree_limit"},
	};

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (!strcmp(s->ended_code, ends[i].code))
			life_note(s, (struct audit_event){.name = ends[i].event,
							  .text = s->ended_text});
}
