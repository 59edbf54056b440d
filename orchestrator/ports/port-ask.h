// SPDX-License-Identifier: Apache-2.0
/* The head of a request as a server in a sandbox gets it. Independent of h2o, so that it can be
 * fuzzed. */
#ifndef RAMET_ORCHESTRATOR_PORTS_PORT_ASK_H
#define RAMET_ORCHESTRATOR_PORTS_PORT_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/json/text.h"

struct port_field {
	const char *name, *value; /* names in lower case */
	size_t name_len, value_len;
};

struct port_ask {
	const char *method, *path; /* the path as the server sees it */
	size_t method_len, path_len;
	const struct port_field *fields; /* the client's header fields */
	size_t n_fields;
	const char *authority; /* of the client's request */
	size_t authority_len;
	const char *prefix; /* removed from the client's path; empty: none */
	size_t prefix_len;
	const char *client;  /* address of the client */
	const char *scheme;  /* "http" or "https" */
	const char *upgrade; /* protocol that the client wants to change to */
	size_t upgrade_len;  /* 0: none */
	uint16_t port;
	bool key_used; /* the Authorization header has the service's key, not the server's */
	enum { PORT_NO_BODY, PORT_BODY_LENGTH, PORT_BODY_CHUNKED } body;
	size_t body_len;
};

/* Adds the head to `out`. Returns false when method or path can't be sent over HTTP/1. */
bool port_ask_write(struct text *out, const struct port_ask *ask);

/* Parts of a head: its first line (false: as above), one field, and the fields for body and upgrade
 * with the empty line. `connection`: the value of the Connection header. */
bool port_ask_line(struct text *out, const struct port_ask *ask);
void port_ask_field(struct text *out, const char *name, const char *value, size_t len);
void port_ask_end(struct text *out, const struct port_ask *ask, const char *connection);

/* Returns whether a header concerns a single connection (hop-by-hop), so that proxies don't pass it
 * on. `connection` has the values of all Connection headers, which name further ones. */
bool port_is_hop(const char *name, size_t len, const struct port_field *fields, size_t n_fields);
/* Returns whether the comma-separated list has the token, whatever its case. */
bool port_has_token(const char *list, size_t len, const char *token, size_t token_len);
static inline bool port_name_is(const char *name, size_t len, const char *other)
{
	return len == __builtin_strlen(other) && __builtin_memcmp(name, other, len) == 0;
}
/* Returns whether the bytes can be the name of a field. */
bool port_is_name(const char *p, size_t len);
/* Returns whether the bytes can be a header's value in HTTP/1. */
bool port_is_value(const char *p, size_t len);
/* Finds the token in a Cookie header; NULL: none. */
const char *port_cookie_token(const char *value, size_t len, size_t *token_len);

#endif
