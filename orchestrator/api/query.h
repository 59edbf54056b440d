// SPDX-License-Identifier: Apache-2.0
/* Parameters of a URL's query. Knows nothing of h2o, so that it can be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_API_QUERY_H
#define RAMET_ORCHESTRATOR_API_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The value of a parameter, percent-decoded and with a space for each plus, with a NUL behind it;
 * `room` counts that as well. `url` is as sent, with a path before the query. Returns the bytes,
 * 0 also when it is there without any; -ENOENT when it is not there; -EINVAL with a sentence when
 * it is there twice, is too long, holds NUL or a % without two hexadecimal digits.
 */
int query_text(const char *url, size_t url_len, const char *name, char *out, size_t room,
	       struct err *e);
/* Absolute; `out` has room for the longest. Absent is an error too. */
int query_path(const char *url, size_t url_len, char *out, size_t room, struct err *e);
/* Permission bits in octal; *out stays as it is when there are none. */
int query_mode(const char *url, size_t url_len, uint32_t *out, struct err *e);
/* 1, true, 0 or false; *out stays as it is when it is absent. */
int query_flag(const char *url, size_t url_len, const char *name, bool *out, struct err *e);
/* A whole number from `least` to 2^53; *out stays as it is when it is absent. */
int query_number(const char *url, size_t url_len, const char *name, uint64_t least, uint64_t *out,
		 struct err *e);

/* --- Range (RFC 9110 14.1.2) ------------------------------------------------------------------ */

struct byte_range {
	uint64_t offset, length; /* length UINT64_MAX: to the end */
	bool from_end;		 /* the last `offset` bytes */
};
/* False: it is none that has to be served, and the whole is. */
bool range_read(const char *value, size_t len, struct byte_range *out);

#endif
