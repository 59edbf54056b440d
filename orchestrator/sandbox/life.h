// SPDX-License-Identifier: Apache-2.0
/* Reports what becomes of sandboxes to the listener of core_watch_lives. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_LIFE_H
#define RAMET_ORCHESTRATOR_SANDBOX_LIFE_H

#include "orchestrator/sandbox/sandboxes.h"

struct sandbox;

/* `other`, `space`, `text`: NULL where the event has none. */
void life_notify(const struct sandbox *s, enum life_event event, const char *other,
		 const char *space, const char *text);
/* Reports the final end of a sandbox, by its end code. Merge and freeze report their own ends. */
void life_notify_end(const struct sandbox *s);

#endif
