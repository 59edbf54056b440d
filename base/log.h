// SPDX-License-Identifier: Apache-2.0
/*
 * Writes one line per call to standard error: time, level, role, text; or the same as a JSON
 * object. Control characters are replaced by question marks.
 */
#ifndef RAMET_BASE_LOG_H
#define RAMET_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#define LOG_LINE_MAX 1024

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/*
 * Sets the role that names this process in its lines ("vm 12", "warden"; copied). Lines below the
 * level `least` are dropped.
 */
void log_init(const char *role, enum log_level least);
/* Selects between JSON objects and plain text. */
void log_set_json(bool json);

/* Consumes whole lines. May be called on any thread. */
typedef void log_write_fn(const char *lines, size_t len);
/*
 * Passes all later lines to `output`. NULL restores the default, write(2) on standard error. Call
 * it before other threads exist.
 */
void log_set_output(log_write_fn *output);
/* Writes whole lines made by log_render. */
void log_write(const char *lines, size_t len);

/*
 * Writes one line with one write(2), so that lines of several processes never mix. Preserves errno.
 */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Makes the line (with its newline) that log_line would write, for a writer that batches lines.
 * Returns its length, or 0 when the level is dropped. `size` is at least LOG_LINE_MAX.
 */
size_t log_render(char *line, size_t size, enum log_level level, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
