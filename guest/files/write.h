// SPDX-License-Identifier: Apache-2.0
/* Writes to files, in workers. */
#ifndef RAMET_GUEST_FILES_WRITE_H
#define RAMET_GUEST_FILES_WRITE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Returns -ENOSPC if `size` bytes do not fit on the disk, before they arrive. */
int check_room(int fd, uint64_t size, struct err *e);
/* Writes all of the data at offset `at`; at the end of a file that was opened with O_APPEND. */
int write_all(int fd, const uint8_t *data, size_t len, off_t at, struct err *e);

#endif
