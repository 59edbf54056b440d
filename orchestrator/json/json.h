// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a JSON object into a struct. Each field that a route lists is checked for its type and
 * limits when it is read. The syntax of the whole text is checked (RFC 8259, UTF-8, nothing after
 * the object) without building a tree, so that a body of N bytes never takes more than about N more
 * bytes. Unknown fields are ignored; null counts as absent.
 */
#ifndef RAMET_ORCHESTRATOR_JSON_JSON_H
#define RAMET_ORCHESTRATOR_JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define JSON_DEPTH_MAX	  64
#define JSON_ENV_MAX	  1024	       /* variables */
#define JSON_ENV_TEXT_MAX (256u << 10) /* bytes of all variables */
#define JSON_FLAT_MAX	  8	       /* members of a json_flat */

enum json_kind {
	JSON_TEXT,   /* struct json_text; at most `max` bytes */
	JSON_CHARS,  /* char[max + 1]: a text of min to max bytes */
	JSON_WHOLE,  /* uint32_t in [min, max] */
	JSON_CUT,    /* uint32_t of at least min; values above max are reduced to max */
	JSON_MILLIS, /* seconds in [min, max] -> uint32_t milliseconds, at least 1 */
	JSON_REAL,   /* a number in [min, max] -> double */
	JSON_BOOL,   /* bool */
	JSON_BIG,    /* a whole number in [min, max], up to 2^53 -> uint64_t or int64_t */
	JSON_BYTES,  /* struct json_text: base64 of at most `max` bytes; may contain any byte */
	JSON_OBJECT, /* struct json_text: the object as written; at most `max` bytes */
	JSON_ENV,    /* char **: an object of strings -> NAME=VALUE, NULL-terminated */
	JSON_PAIRS, /* like JSON_ENV, from an array of [name, value] or from an object of strings */
	JSON_NAME,  /* struct json_text: like JSON_TEXT, or a whole number, in decimal */
	JSON_LIST,  /* char **: an array of at most `max` strings, NULL-terminated */
	JSON_OBJECTS, /* char **: an array of at most `max` objects, each as written,
			 NULL-terminated */
};

/* Owned. NUL-terminated and without other NULs, except for JSON_BYTES. p is NULL when the field was
 * absent. */
struct json_text {
	char *p;
	size_t len;
};

struct json_field {
	const char *name;
	enum json_kind kind;
	size_t offset; /* of the value in the structure to fill */
	double min, max;
	bool required;
	/* JSON_TEXT: all permitted values, NULL-terminated; NULL: any text */
	const char *const *words;
	const char *hint; /* what the error says about other values; or NULL */
	size_t max_at;	  /* not 0: the offset of the maximum, in the service's config */
};
/* A field whose value fills `member` of `type`, then further members of struct json_field. */
#define JSON_FIELD(type, member, json_name, json_kind, ...)                                        \
	{                                                                                          \
		.name = json_name, .kind = json_kind, .offset = offsetof(type, member),            \
		##__VA_ARGS__                                                                      \
	}

/* A body: the structure that its fields fill, and the values of absent ones. Those of the API's
 * bodies are generated from openapi.json (spec.h). */
struct json_body {
	const struct json_field *fields;
	size_t n_fields;
	const void *initial;
	size_t size;
};

/*
 * Fills `out`. Absent fields keep the caller's value, which must be NULL for pointers. An empty
 * body counts as {}. On failure the error text names the field, its value and the limit, and there
 * is nothing to free. On success the caller frees with json_free.
 */
int json_read(const char *body, size_t len, const struct json_field *fields, size_t n_fields,
	      void *out, struct err *e);
/* Returns whether the text is one JSON value that may be put into `depth` objects or arrays, and
 * that clients can read: its numbers have at most 1,000 characters. */
bool json_is_value(const char *text, size_t len, int depth);
/* An object whose members are strings, numbers, bools and nulls. */
struct json_flat {
	size_t n;
	struct json_member {
		struct json_text name, value; /* owned; a value that is not a string: as written */
		bool is_string;
	} members[JSON_FLAT_MAX];
};
/* Reads a flat object. Errors call it `name`; then there is nothing to free. On success the caller
 * frees with json_flat_free. */
int json_flat_read(struct json_flat *out, const char *name, const char *text, size_t len,
		   struct err *e);
void json_flat_free(struct json_flat *flat);
/* Returns whether the valid object `text` has every member of `wanted`, with an equal value. 7 and
 * 7.0 are equal. Reads the text once. */
bool json_has(const char *text, size_t len, const struct json_flat *wanted);
void json_free(const struct json_field *fields, size_t n_fields, void *out);

#endif
