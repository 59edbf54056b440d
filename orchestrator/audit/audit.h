// SPDX-License-Identifier: Apache-2.0
/*
 * The audit log: what became of sandboxes and keys, one line of JSON for each event, in order.
 * Writing never holds the loop up: lines wait in a ring of bounded size, which a worker writes out.
 * The ring lies in memory that the warden keeps, so that a killed service loses no line. When the
 * disk takes nothing for so long that the ring is full, lines are counted instead, and a line
 * "audit.lost" says how many, where they would be.
 */
#ifndef RAMET_ORCHESTRATOR_AUDIT_AUDIT_H
#define RAMET_ORCHESTRATOR_AUDIT_AUDIT_H

#include "base/err.h"
#include "orchestrator/audit/line.h"
#include "orchestrator/config/config.h"
#include "orchestrator/io/loop.h"

struct audit;

/*
 * *out is NULL when the settings want no audit log. `ring_fd`: AUDIT_RING_BYTES of shared memory
 * (not taken over), or -1 for memory of its own. Opens the folder, which is there. Before the
 * loop's first turn: it reads files.
 */
int audit_new(struct audit **out, struct loop *loop, const struct config *config, int ring_fd,
	      struct err *e);
/* `a` may be NULL. */
void audit_add(struct audit *a, const struct audit_event *event);
/* Nothing is written from here on but by audit_free, which waits for the disk and writes what is
 * left; the loop turns no more then, or is freed. NULL is fine. */
void audit_stop(struct audit *a);
void audit_free(struct audit *a);

struct audit_stats {
	uint64_t lines, lost, failures; /* taken; not kept; writes that failed */
	uint64_t waiting_bytes, written_bytes;
	uint64_t last; /* number of the last line taken */
};
/* All 0 when `a` is NULL. */
void audit_stats(const struct audit *a, struct audit_stats *out);

#endif
