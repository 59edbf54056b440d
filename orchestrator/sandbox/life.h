// SPDX-License-Identifier: Apache-2.0
/* Adds the events of sandboxes (created, forked, ended, ...) to the catalogue. Each function is
 * called directly before the change of the catalogue whose transaction the event joins. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_LIFE_H
#define RAMET_ORCHESTRATOR_SANDBOX_LIFE_H

#include "orchestrator/events/line.h"

struct service;
struct sandbox;

/* Adds `event` with the members that every event of a sandbox has. */
void life_note(const struct sandbox *s, struct audit_event event);
/* Adds the event for the end that `s` has. */
void life_note_end(const struct sandbox *s);

#endif
