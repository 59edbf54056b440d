// SPDX-License-Identifier: Apache-2.0
/* Reads and writes regular files, by descriptor and offset; opens directories. */
#ifndef RAMET_BASE_FILE_H
#define RAMET_BASE_FILE_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Sets *bytes to the size of a regular file. Fails for other types of files. */
int file_size(int fd, uint64_t *bytes, struct err *e);
/* Reads exactly `len` bytes from `offset`; -ENODATA if the file is too short. */
int file_read(int fd, uint64_t offset, void *out, uint64_t len, struct err *e);
/* Writes exactly `len` bytes at `offset`. */
int file_write(int fd, uint64_t offset, const void *data, uint64_t len, struct err *e);

/* Makes the directory, mode 0700, unless it exists. Returns a descriptor of it, or -errno. */
int directory_open(const char *path, struct err *e);
/* Opens a directory for readdir(3); `path` is as for openat(2), and no link. NULL: errno is set. */
DIR *directory_list(int dir, const char *path);

#endif
