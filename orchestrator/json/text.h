// SPDX-License-Identifier: Apache-2.0
/* A growing buffer of output, and JSON written to it. Lack of memory ends the process: the warden
 * restarts it and no sandbox is lost. */
#ifndef RAMET_ORCHESTRATOR_JSON_TEXT_H
#define RAMET_ORCHESTRATOR_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	char *p; /* not NUL-terminated */
	size_t len, room;
};

void text_free(struct text *t);
void text_add(struct text *t, const void *p, size_t len);
void text_puts(struct text *t, const char *s);
void text_putc(struct text *t, char c);
void text_printf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_number(struct text *t, int64_t n);

/* Adds the bytes as a JSON string with quotes. Invalid UTF-8 is replaced by U+FFFD, and the result
 * is false. U+0085, U+2028 and U+2029 are escaped: line iterators of clients split at them. */
bool json_string(struct text *t, const void *p, size_t len);
/* Adds a JSON value, which must be valid, in one line. U+0085, U+2028 and U+2029 are escaped. */
void json_value(struct text *t, const void *p, size_t len);
/* Returns whether the bytes are valid UTF-8, so that json_string replaces none of them. */
bool utf8_valid(const void *p, size_t len);
/* Adds the bytes in base64, with quotes. */
void json_base64(struct text *t, const uint8_t *p, size_t len);
/* Adds {"error":SENTENCE,"code":CODE}. */
void json_error(struct text *t, const char *sentence, const char *code);
/* Adds "2026-01-31T23:59:59.123Z" with quotes; null when the time is 0 or negative. */
void json_time(struct text *t, int64_t ms_since_epoch);
/* Adds a comma and the member `name` of an object: a string, or null for NULL. */
void json_member(struct text *t, const char *name, const char *value);
/* The same for a number, a bool, and a time as by json_time. */
void json_member_number(struct text *t, const char *name, uint64_t n);
void json_member_bool(struct text *t, const char *name, bool value);
void json_member_time(struct text *t, const char *name, int64_t ms_since_epoch);

#endif
