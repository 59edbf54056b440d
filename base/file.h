// SPDX-License-Identifier: Apache-2.0
/* Reads and writes files; opens directories. */
#ifndef RAMET_BASE_FILE_H
#define RAMET_BASE_FILE_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Sets *bytes to the size of a regular file. Fails for other types of files. */
int file_size(int fd, uint64_t *bytes, struct err *e);
/* Reads exactly `len` bytes from `offset`; -ENODATA if the file is too short. */
int file_read(int fd, uint64_t offset, void *out, uint64_t len, struct err *e);
/* Writes exactly `len` bytes at `offset`. */
int file_write(int fd, uint64_t offset, const void *data, uint64_t len, struct err *e);

/* Finds the next data [*data, *hole) of the file between `at` and `end`, in whole pages unless
 * `end` cuts the last one: all of the range when the file system can't tell, empty when no data
 * follows. */
void file_next_data(int fd, uint64_t at, uint64_t end, uint64_t *data, uint64_t *hole);

/* Reads from the descriptor up to the end of the file, at most `most` bytes. Returns them with a
 * NUL after them, which the caller frees; NULL with *e filled, also when there are more. `fd` may
 * be the result of an open(2) that has just failed. */
char *file_text(int fd, size_t most, size_t *len, struct err *e);
/* Replaces the file `name` in `dir`. After a crash or a power cut, the whole new file is there, or
 * the old one. `group`: the group of the new file; 0: the process's group. */
int file_replace(int dir, const char *name, const void *data, size_t len, mode_t mode, gid_t group,
		 struct err *e);

/* Makes the directory, mode 0700, unless it exists. Returns a descriptor of it, or -errno. */
int directory_open(const char *path, struct err *e);
/* Opens a directory for readdir(3); `path` is as for openat(2), and no link. NULL: errno is set. */
DIR *directory_list(int dir, const char *path);

#endif
