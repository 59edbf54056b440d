// SPDX-License-Identifier: Apache-2.0
/* One line of the audit log: a JSON object, made by the service, read by ramet-notify. */
#ifndef RAMET_ORCHESTRATOR_AUDIT_LINE_H
#define RAMET_ORCHESTRATOR_AUDIT_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIT_FILE     "audit.jsonl" /* the current one; older: audit.jsonl.1 and so on */
#define AUDIT_LINE_MAX 4096	     /* with its newline */
#define AUDIT_ID_LEN   36	     /* "evt_" + 32 hex digits */
#define AUDIT_NAME_MAX 31	     /* of an event: "sandbox.created" */

/* Of the memory in which lines wait for the disk; the warden makes it. */
#define AUDIT_RING_BYTES ((1u << 20) + 4096)

/* What happened; strings may be NULL where the event has none. */
struct audit_event {
	const char *name;
	int64_t at_ms; /* since the epoch */
	const char *tenant, *sandbox, *template;
	const char *parent, *winner; /* ids of sandboxes */
	const char *space;
	const char *key, *previous; /* ids of keys: the one, and that which it follows */
	const char *text;
	uint64_t lost; /* lines that could not be kept; 0: not said */
};

/* Writes the line with its newline and returns its length. `n` numbers the lines; `id` is that of
 * the event for all time. */
size_t audit_line_make(char out[static AUDIT_LINE_MAX], uint64_t n, const char *id,
		       const struct audit_event *event);
/* The same, with a new id. */
size_t audit_line_new(char out[static AUDIT_LINE_MAX], uint64_t n, const struct audit_event *event);

/* The head of a line. */
struct audit_line {
	uint64_t n;
	char id[AUDIT_ID_LEN + 1];
	int64_t at_ms;
	char name[AUDIT_NAME_MAX + 1];
};
/* False when the `len` bytes (without the newline) are no line that audit_line_make makes. */
bool audit_line_parse(struct audit_line *out, const char *p, size_t len);

#endif
