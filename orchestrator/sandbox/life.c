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

const struct life_end *life_end(const char *code)
{
	static const struct life_end ends[] = {
		{"expired", FAIL_EXPIRED, "sandbox.expired"},
		{"deleted", FAIL_DELETED, "sandbox.deleted"},
		{"stopped", FAIL_STOPPED, "sandbox.stopped"},
		{"merged", FAIL_MERGED, NULL},
		{"frozen", FAIL_FROZEN, NULL},
		{"tree_limit", FAIL_TREE_ENDED, "sandbox.tree_limit"},
		{"vm_died", FAIL_VM_DIED, "sandbox.died"},
	};
	size_t i = 0;

	while (i < ARRAY_LEN(ends) - 1 && strcmp(code, ends[i].code) != 0)
		i++;
	return &ends[i];
}

void life_note_end(const struct sandbox *s)
{
	const char *event = life_end(s->ended_code)->event;

	if (event)
		life_note(s, (struct audit_event){.name = event, .text = s->ended_text});
}
