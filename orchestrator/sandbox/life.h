// SPDX-License-Identifier: Apache-2.0
/* Reports events of sandboxes (created, forked, ended, ...) to the listener that core_watch_lives
 * set. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_LIFE_H
#define RAMET_ORCHESTRATOR_SANDBOX_LIFE_H

#include "orchestrator/sandbox/sandboxes.h"

struct sandbox;

/* Reports an event. `other`, `space` and `text` are NULL if the event has none (struct life). */
void life_notify(const struct sandbox *s, enum life_event event, const char *other,
		 const char *space, const char *text);
/* Reports the end of a sandbox as the event of its end code; does nothing for "merged" and
 * "frozen", which merge.c and sandbox_end_frozen report. */
void life_notify_end(const struct sandbox *s);

#endif
