// SPDX-License-Identifier: Apache-2.0
/* Adds the events of sandboxes (created, forked, ended, ...) to the catalogue. Each function is
 * called directly before the change of the catalogue whose transaction the event joins. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_LIFE_H
#define RAMET_ORCHESTRATOR_SANDBOX_LIFE_H

#include "orchestrator/config/failure.h"
#include "orchestrator/events/line.h"

struct service;
struct sandbox;

/* Adds `event` with the members that every event of a sandbox has. */
void life_note(const struct sandbox *s, struct audit_event event);
/* How sandboxes end. */
struct life_end {
	const char *code;	   /* in the catalogue */
	enum failure_code failure; /* of later requests */
	const char *event;	   /* NULL: that of a merge or freeze */
};
/* Returns the entry of the code, or that of "vm_died" when the code is unknown. */
const struct life_end *life_end(const char *code);
/* Adds the event for the end that `s` has. */
void life_note_end(const struct sandbox *s);

#endif
