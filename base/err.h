// SPDX-License-Identifier: Apache-2.0
/*
 * An error a person will read: a negative errno and a sentence. The buffer is fixed, so it can be
 * filled after fork and when memory is gone. Untouched on success, filled once where the failure
 * is seen, and given context by the callers on the way up.
 */
#ifndef RAMET_BASE_ERR_H
#define RAMET_BASE_ERR_H

#include <stdarg.h>

#define ERR_TEXT_MAX 256

struct err {
	int code; /* -errno, or 0 when no error was set */
	char text[ERR_TEXT_MAX];
};

/* Fills `e` (may be NULL) with "format: strerror(errnum)". Returns -errnum; 0 counts as EIO. */
int err_set(struct err *e, int errnum, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* As err_set, but the sentence stands alone: no strerror text is added. */
int err_say(struct err *e, int errnum, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "format: " before the sentence already in `e` (may be NULL). Returns e->code. */
int err_context(struct err *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
