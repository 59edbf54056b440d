// SPDX-License-Identifier: Apache-2.0
/*
 * Typed reading of a JSON object: the fields a route knows, each checked where it is read. The text
 * is checked as a whole (RFC 8259, UTF-8, nothing behind it) without building a tree, so that a
 * body of N bytes never takes more than about N bytes more. Unknown fields are ignored; null counts
 * as absent.
 */
#ifndef RAMET_ORCHESTRATOR_API_JSON_H
#define RAMET_ORCHESTRATOR_API_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define JSON_DEPTH_MAX	  64
#define JSON_ENV_MAX	  1024	       /* variables */
#define JSON_ENV_TEXT_MAX (256u << 10) /* bytes of them all */

enum json_kind {
	JSON_TEXT,   /* struct json_text; `max` bytes at most */
	JSON_WHOLE,  /* uint32_t in [min, max] */
	JSON_CUT,    /* uint32_t of at least min; what is more than max counts as that */
	JSON_MILLIS, /* a number of seconds in [min, max] -> uint32_t milliseconds, at least 1 */
	JSON_BOOL,   /* bool */
	JSON_BIG,    /* a whole number in [min, max], up to 2^53 -> uint64_t */
	JSON_BYTES,  /* struct json_text: base64 of `max` bytes at most; may hold any byte */
	JSON_OBJECT, /* struct json_text: the object as it stands; `max` bytes at most */
	JSON_ENV,    /* char **: an object of strings -> NAME=VALUE, NULL-terminated */
	JSON_PAIRS,  /* the same from an array of [name, value], or from such an object */
	JSON_LIST,   /* char **: an array of `max` strings at most, NULL-terminated */
};

/* Owned; NUL-terminated, and without NUL in it. p is NULL when the field was absent. */
struct json_text {
	char *p;
	size_t len;
};

struct json_field {
	const char *name;
	enum json_kind kind;
	size_t offset; /* in the structure to fill */
	double min, max;
	bool required;
};

/*
 * Fills `out`, which the caller zeroed. An empty body counts as {}. On failure the sentence names
 * the field, what came and the limit, and nothing is left to free; on success json_free frees.
 */
int json_read(const char *body, size_t len, const struct json_field *fields, size_t n_fields,
	      void *out, struct err *e);
void json_free(const struct json_field *fields, size_t n_fields, void *out);

#endif
