// SPDX-License-Identifier: Apache-2.0
/* Parameters of a URL's query. Independent of h2o, so that it can be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_JSON_QUERY_H
#define RAMET_ORCHESTRATOR_JSON_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/json/text.h"

/* Returns the percent-decoded byte at *p and moves *p past it; -1 for a % without two hexadecimal
 * digits, and for NUL. */
int percent_byte(const char **p, const char *end);
/*
 * Copies the value of a parameter to `out`, a buffer of `room` bytes: percent-decoded, with pluses
 * as spaces and a NUL at the end. `url` is as sent, with a path before the query. Returns the
 * length, which may be 0; -ENOENT when the parameter is absent; -EINVAL with an error text when it
 * occurs twice, is too long, or contains NUL or a % without two hexadecimal digits.
 */
int query_text(const char *url, size_t url_len, const char *name, char *out, size_t room,
	       struct err *e);
/* Adds the query's parameters to `out`, each after an '&', except those with one of the `n`
 * names. */
void query_without(struct text *out, const char *url, size_t url_len, const char *const *names,
		   size_t n);
/* Reads the absolute path in the parameter `name`; `out` has room for the longest. Fails also when
 * it is absent. Returns the length, or -EINVAL with an error text. */
int query_path(const char *url, size_t url_len, const char *name, char *out, size_t room,
	       struct err *e);
/* Reads permission bits in octal; leaves *out unchanged when absent. */
int query_mode(const char *url, size_t url_len, uint32_t *out, struct err *e);
/* Reads 1, true, 0 or false; leaves *out unchanged when absent. */
int query_flag(const char *url, size_t url_len, const char *name, bool *out, struct err *e);
/* Reads a whole number from `least` to 2^53; leaves *out unchanged when absent. */
int query_number(const char *url, size_t url_len, const char *name, uint64_t least, uint64_t *out,
		 struct err *e);

/* Reads a UTC time as the service writes it ("2026-01-31T23:59:59.123Z", fraction optional) as
 * milliseconds since the epoch; leaves *out unchanged when absent. */
int query_time(const char *url, size_t url_len, const char *name, int64_t *out, struct err *e);

/* --- Range (RFC 9110 14.1.2) ------------------------------------------------------------------ */

struct byte_range {
	uint64_t offset, length; /* length UINT64_MAX: to the end */
	bool from_end;		 /* the last `offset` bytes */
};
/* Returns false for a Range that is ignored: then the whole file is served. */
bool range_read(const char *value, size_t len, struct byte_range *out);

#endif
