// SPDX-License-Identifier: Apache-2.0
/*
 * An error for people: a negative errno and a message. The buffer is fixed, so an error can be set
 * after fork and when memory is exhausted. It is untouched on success, set once where the failure
 * is detected, and given context by the callers on the way up.
 */
#ifndef RAMET_BASE_ERR_H
#define RAMET_BASE_ERR_H

#include <stdarg.h>

#define ERR_TEXT_MAX 256

struct err {
	int code; /* -errno, or 0 when no error was set */
	char text[ERR_TEXT_MAX];
};

/* Sets `e` (may be NULL) to "format: strerror(errnum)". Returns -errnum; 0 counts as EIO. */
int err_set(struct err *e, int errnum, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Like err_set, but without the strerror text. */
int err_say(struct err *e, int errnum, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Prepends "format: " to the message in `e` (may be NULL). Returns e->code, or -EIO if `e` is
 * NULL. */
int err_context(struct err *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
