// SPDX-License-Identifier: Apache-2.0
/* Reads files in /proc, for example the statistics of a process or a thread. */
#ifndef RAMET_ORCHESTRATOR_VM_PROC_STAT_H
#define RAMET_ORCHESTRATOR_VM_PROC_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc_stat {
	char name[32]; /* chosen by the process: any bytes */
	char state;
	uint64_t major_faults, user_ms, system_ms;
};

/* Reads a file such as /proc/PID/stat or /proc/PID/task/TID/stat. Returns false when it cannot be
 * read. */
bool proc_stat_read(const char *path, struct proc_stat *out);
/* Reads the start of a file as text, without its last newline. Returns false when it cannot be
 * read. */
bool proc_text_read(const char *path, char *out, size_t size);

#endif
