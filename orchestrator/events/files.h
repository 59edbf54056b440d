// SPDX-License-Identifier: Apache-2.0
/* The files of the audit log. All functions may block on the disk: call them on worker threads. */
#ifndef RAMET_ORCHESTRATOR_EVENTS_FILES_H
#define RAMET_ORCHESTRATOR_EVENTS_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/events/line.h"

struct audit_files {
	int dir; /* not owned */
	int fd;	 /* of the current file; -1: the next append opens it */
	uint64_t size;
	uint64_t max_bytes; /* approximate limit of a file */
	unsigned files;	    /* number of files, including the current one */
	uint64_t written;   /* total bytes written */
};

/* Returns the number of the last whole line in the folder; 0: there is none. */
uint64_t audit_files_last(int dir);
/*
 * Appends `len` bytes and sets *done to the number written, also on failure. Rotates a file that
 * would exceed its size first, but only if the bytes begin a line (`at_line`). Terminates a torn
 * line that a previous instance left at the end.
 */
int audit_files_append(struct audit_files *j, const char *p, size_t len, bool at_line, size_t *done,
		       struct err *e);
int audit_files_sync(struct audit_files *j, struct err *e);
/* Appends one event's line and waits for the disk. For programs that run while the service does
 * not. */
int audit_files_add(struct audit_files *j, const struct audit_event *event, struct err *e);
void audit_files_close(struct audit_files *j);

#endif
