// SPDX-License-Identifier: Apache-2.0
/*
 * Bundles: the results and exceptions of a call, as guests send them (AGENT_BUNDLE in
 * proto/agent.h) and as events carry them. Their bytes are user code's; an event's are well-formed.
 */
#ifndef RAMET_ORCHESTRATOR_EXEC_BUNDLE_H
#define RAMET_ORCHESTRATOR_EXEC_BUNDLE_H

#include "base/wire.h"
#include "proto/agent.h"

#define BUNDLE_ENTRIES_MAX 64
#define BUNDLE_NAME_MAX	   255
#define BUNDLE_NOTE_MAX	   512

/* Pointers are into the bundle. */
struct bundle_entry {
	const uint8_t *name, *data;
	size_t name_len, len;
	enum agent_bundle kind;
};

/* Reads the next entry. Returns false at the end, and for an invalid entry, after which w->bad is
 * true. */
bool bundle_next(struct wire *w, struct bundle_entry *out);
/* Returns true for 1 to BUNDLE_ENTRIES_MAX valid entries. A name is ASCII without control
 * characters. */
bool bundle_is_sound(const uint8_t *data, size_t len);
/* Writes a bundle with the text as its only entry. Returns its length, at most BUNDLE_NOTE_MAX. */
size_t bundle_note(uint8_t out[BUNDLE_NOTE_MAX], const char *text);

#endif
