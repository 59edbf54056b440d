// SPDX-License-Identifier: Apache-2.0
/* Small files, as the kernel has them in /proc, /sys and cgroups. `path` is as for openat(2). */
#ifndef RAMET_BASE_TEXT_FILE_H
#define RAMET_BASE_TEXT_FILE_H

#include <stddef.h>
#include <stdio.h>

/* Reads the first size - 1 bytes at most, as a text. Returns their number, or -errno with an empty
 * text. A FIFO does not block. */
int text_file_read(int dir, const char *path, char *out, size_t size);
/* Writes the text to a file that exists. Returns 0 or -errno. */
int text_file_write(int dir, const char *path, const char *text);

/* Returns the text that print(f, arg) writes, which the caller frees; NULL when out of memory. */
char *text_print(void (*print)(FILE *f, const void *arg), const void *arg);

#endif
