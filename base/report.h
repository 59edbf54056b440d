// SPDX-License-Identifier: Apache-2.0
/*
 * Text for people in a buffer of fixed size. A text that does not fit is truncated and says so at
 * its end.
 */
#ifndef RAMET_BASE_REPORT_H
#define RAMET_BASE_REPORT_H

#include <stdbool.h>
#include <stddef.h>

struct report {
	char *text; /* NUL-terminated */
	size_t size, len;
	bool cut; /* something did not fit; nothing more is added */
};

/* Begins an empty report in `buffer`, which the caller owns; `size` is at least 64. */
struct report report_on(char *buffer, size_t size);
void report_add(struct report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Adds text of another process, up to its first NUL or `len` bytes. Replaces everything except
 * printable ASCII and newlines by question marks.
 */
void report_add_foreign(struct report *r, const char *text, size_t len);
/* Replaces everything in one line of foreign text except printable ASCII by question marks. */
void report_clean(char *line);

#endif
