// SPDX-License-Identifier: Apache-2.0
/* An event of the audit log as a line: a JSON object, written by the service, read by ramet-notify.
 */
#ifndef RAMET_ORCHESTRATOR_EVENTS_LINE_H
#define RAMET_ORCHESTRATOR_EVENTS_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIT_LINE_MAX 4096 /* bytes, with the newline */
#define AUDIT_ID_LEN   36   /* "evt_" + 32 hex digits */
#define AUDIT_NAME_MAX 31   /* name of an event: "sandbox.created" */

/* What happened. Strings that do not apply to the event are NULL. */
struct audit_event {
	const char *name;
	int64_t at_ms; /* since the epoch */
	const char *tenant, *sandbox, *template;
	const char *parent, *winner; /* ids of sandboxes */
	const char *space, *checkpoint;
	const char *key, *previous; /* ids of keys: the key, and the key that it replaces */
	const char *text;
};

/* Writes the line with its newline and returns its length. `n` is the number of the line, `id` the
 * permanent id of the event. */
size_t audit_line_make(char out[static AUDIT_LINE_MAX], uint64_t n, const char *id,
		       const struct audit_event *event);
/* Like audit_line_make, with a new id. */
size_t audit_line_new(char out[static AUDIT_LINE_MAX], uint64_t n, const struct audit_event *event);

/* The head of a line. */
struct audit_line {
	uint64_t n;
	char id[AUDIT_ID_LEN + 1];
	int64_t at_ms;
	char name[AUDIT_NAME_MAX + 1];
};
/* Reads the head of a line of `len` bytes, without the newline; false when audit_line_make did not
 * write it. */
bool audit_line_parse(struct audit_line *out, const char *p, size_t len);

#endif
