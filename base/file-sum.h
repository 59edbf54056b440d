// SPDX-License-Identifier: Apache-2.0
/* Checksums of large, sparse files, and a cache of known ones. Used on worker threads. */
#ifndef RAMET_BASE_FILE_SUM_H
#define RAMET_BASE_FILE_SUM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/*
 * A walk over a whole file in steps. It computes the checksum, and writes a copy when `out` is not
 * -1. The sum is the CRC-32C of every 4 KiB block that is not all zeros, each preceded by its
 * number as 8 bytes. Holes and zeros therefore count the same, and the time depends on the data of
 * a sparse file, not on its size.
 */
struct file_walk {
	int in, out; /* owned by the caller; `out` is an empty file */
	uint64_t at, bytes;
	uint32_t sum;
	uint8_t *buffer;
};
int file_walk_begin(struct file_walk *w, int in, int out, uint64_t bytes, struct err *e);
/*
 * Continues for about `budget` bytes of data, which are added to *done; holes are free. Returns 1
 * at the end of the file, 0 when there is more, or -errno.
 */
int file_walk_step(struct file_walk *w, uint64_t budget, uint64_t *done, struct err *e);
void file_walk_end(struct file_walk *w);

/*
 * A cache of checksums of files that this process has read or written, by inode, size and
 * modification time: a file that was neither replaced nor written since then need not be read
 * again to know its sum. Thread-safe.
 */
bool file_sum_known(const struct stat *st, uint32_t *sum);
void file_sum_learn(const struct stat *st, uint32_t sum);

#endif
