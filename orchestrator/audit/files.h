// SPDX-License-Identifier: Apache-2.0
/* The files of the audit log. Everything here may wait for the disk: for worker threads. */
#ifndef RAMET_ORCHESTRATOR_AUDIT_FILES_H
#define RAMET_ORCHESTRATOR_AUDIT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/audit/line.h"

struct audit_files {
	int dir; /* not owned */
	int fd;	 /* of the current file; -1: it is opened with the next append */
	uint64_t size;
	uint64_t max_bytes; /* of a file, about */
	unsigned files;	    /* with the current one */
	uint64_t written;   /* bytes, in all */
};

/* The number of the last whole line in the folder; 0: there is none. */
uint64_t audit_files_last(int dir);
/*
 * Appends `len` bytes; *done says how many of them are there, in any case. A file that would grow
 * over its size is put aside first, but only where a line begins: `at_line`. What an earlier life
 * left half written at the end gets a newline.
 */
int audit_files_append(struct audit_files *j, const char *p, size_t len, bool at_line, size_t *done,
		       struct err *e);
int audit_files_sync(struct audit_files *j, struct err *e);
/* Appends one event's line and waits for the disk: for where no service keeps the log. */
int audit_files_add(struct audit_files *j, const struct audit_event *event, struct err *e);
void audit_files_close(struct audit_files *j);

#endif
