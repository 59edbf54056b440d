// SPDX-License-Identifier: Apache-2.0
/* What the kernel says of a process or a thread. */
#ifndef RAMET_BASE_PROC_H
#define RAMET_BASE_PROC_H

#include <stdbool.h>
#include <stdint.h>

struct proc_stat {
	char name[32]; /* chosen by the process: any bytes */
	char state;
	uint64_t major_faults, user_ms, system_ms;
};

/* Reads a file such as /proc/PID/stat or /proc/PID/task/TID/stat. Returns false when it cannot be
 * read. */
bool proc_stat_read(const char *path, struct proc_stat *out);
/* Reads from /proc/PID/statm, which any user may read, the bytes in private pages, and in pages
 * shared with others through a file or a memfd. When that fails, changes nothing. */
void proc_memory_read(uint32_t pid, uint64_t *private_bytes, uint64_t *shared_bytes);

#endif
