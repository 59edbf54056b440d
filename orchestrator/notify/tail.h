// SPDX-License-Identifier: Apache-2.0
/* Reads the audit log line by line while it grows and its files are put aside. */
#ifndef RAMET_ORCHESTRATOR_NOTIFY_TAIL_H
#define RAMET_ORCHESTRATOR_NOTIFY_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/audit/line.h"

struct tail {
	int dir;       /* not owned */
	uint64_t next; /* number of the line that comes next; 0 at first: whatever is there */
	uint64_t gone; /* lines that were not in the log any more */
	int fd;	       /* the file that is read, -1: none yet */
	uint64_t offset;
	bool skipping; /* the rest of a line that is longer than any */
	size_t len, taken;
	char buf[4 * AUDIT_LINE_MAX];
};

void tail_init(struct tail *t, int dir, uint64_t next);
void tail_fini(struct tail *t);
/* True: the next line, without its newline, good until the next call. False: there is none yet, or
 * none can be read. What is no line is passed over. */
bool tail_next(struct tail *t, struct audit_line *head, const char **line, size_t *len);

#endif
