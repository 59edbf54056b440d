// SPDX-License-Identifier: Apache-2.0
/* Reads the audit log line by line while it grows and is rotated. */
#ifndef RAMET_ORCHESTRATOR_EVENTS_TAIL_H
#define RAMET_ORCHESTRATOR_EVENTS_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/events/line.h"

struct tail {
	int dir;       /* not owned */
	uint64_t next; /* number of the next line; 0: accept any line as the first */
	uint64_t gone; /* lines that were removed before they were read */
	int fd;	       /* the file being read; -1: none yet */
	uint64_t offset;
	bool skipping; /* skips the rest of a line that exceeds AUDIT_LINE_MAX */
	size_t len, taken;
	char buf[4 * AUDIT_LINE_MAX];
};

void tail_init(struct tail *t, int dir, uint64_t next);
void tail_fini(struct tail *t);
/* Reads the next line, without its newline, valid until the next call. Returns false when there is
 * none yet, or none can be read. Skips anything that is not a valid line. */
bool tail_next(struct tail *t, struct audit_line *head, const char **line, size_t *len);

#endif
