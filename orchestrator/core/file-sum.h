// SPDX-License-Identifier: Apache-2.0
/* Checksums of large, sparse files, and which files are known to have theirs. On worker threads. */
#ifndef RAMET_ORCHESTRATOR_CORE_FILE_SUM_H
#define RAMET_ORCHESTRATOR_CORE_FILE_SUM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/*
 * A walk over all of a file, in pieces: its checksum, and a copy when `out` is not -1. The sum is
 * the CRC-32C of every 4 KiB that is not all zeros, each behind its number as 8 bytes: so holes and
 * zeros are the same, and a sparse file takes no longer than what is in it.
 */
struct file_walk {
	int in, out; /* the caller's; `out` is an empty file */
	uint64_t at, bytes;
	uint32_t sum;
	uint8_t *buffer;
};
int file_walk_begin(struct file_walk *w, int in, int out, uint64_t bytes, struct err *e);
/* Goes on for up to `budget` bytes that are no hole; *done counts them. 1: it is through; 0: there
 * is more; -errno. */
int file_walk_step(struct file_walk *w, uint64_t budget, uint64_t *done, struct err *e);
void file_walk_end(struct file_walk *w);

/*
 * What this process has read, or written, and found to have a checksum, by inode, size and time of
 * change: what was neither replaced nor written to since need not be read again. Thread-safe.
 */
bool file_sum_known(const struct stat *st, uint32_t *sum);
void file_sum_learn(const struct stat *st, uint32_t sum);

#endif
