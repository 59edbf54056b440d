// SPDX-License-Identifier: Apache-2.0
/*
 * The audit log: what happened to sandboxes and keys, one line of JSON for each event, in order.
 * Writing never blocks the loop: lines wait in a ring of bounded size, which a worker writes out.
 * The ring is in memory that the warden keeps, so that a killed service loses no line. When writing
 * fails for so long that the ring is full, lines are dropped and counted, and a line "audit.lost"
 * states their number in their place.
 */
#ifndef RAMET_ORCHESTRATOR_EVENTS_AUDIT_H
#define RAMET_ORCHESTRATOR_EVENTS_AUDIT_H

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/events/line.h"
#include "orchestrator/io/loop.h"

struct audit;

/*
 * Opens the audit log in its folder, which must exist. Sets *out to NULL when the settings disable
 * the audit log. `ring_fd`: AUDIT_RING_BYTES of shared memory (the caller keeps ownership), or -1
 * for private memory. Reads files, so call it before the loop runs.
 */
int audit_new(struct audit **out, struct loop *loop, const struct config *config, int ring_fd,
	      struct err *e);
/* Adds a line for the event. `a` may be NULL. */
void audit_add(struct audit *a, const struct audit_event *event);
/* audit_stop stops writing. audit_free, called once the loop no longer runs or was freed, waits for
 * the disk and writes the remaining lines. Both accept NULL. */
void audit_stop(struct audit *a);
void audit_free(struct audit *a);

struct audit_stats {
	uint64_t lines, lost, failures; /* lines accepted; lines dropped; failed writes */
	uint64_t waiting_bytes, written_bytes;
	uint64_t last; /* number of the last line accepted */
};

/* Fills *out; all 0 when `a` is NULL. */
void audit_stats(const struct audit *a, struct audit_stats *out);

#endif
