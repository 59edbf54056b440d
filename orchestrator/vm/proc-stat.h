// SPDX-License-Identifier: Apache-2.0
/* What the host's kernel says of a process or a thread of it, in /proc. */
#ifndef RAMET_ORCHESTRATOR_VM_PROC_STAT_H
#define RAMET_ORCHESTRATOR_VM_PROC_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc_stat {
	char name[32]; /* its own choice: any bytes */
	char state;
	uint64_t major_faults, user_ms, system_ms;
};

/* Reads a file like /proc/PID/stat or /proc/PID/task/TID/stat; false when there is none. */
bool proc_stat_read(const char *path, struct proc_stat *out);
/* Reads the start of a file as a text without its last newline; false when it can't be read. */
bool proc_text_read(const char *path, char *out, size_t size);

#endif
