// SPDX-License-Identifier: Apache-2.0
/* Which server in which sandbox a request is for. Independent of h2o, so that it can be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_PORTS_PORT_TARGET_H
#define RAMET_ORCHESTRATOR_PORTS_PORT_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/ports/ports.h"

#define PORT_PARAMETER "ramet_token"	  /* query parameter with a token */
#define PORT_HEADER    "ramet-port-token" /* header with a token */
#define PORT_COOKIE    "ramet_port_token" /* cookie with a token */

struct port_target {
	char id[SANDBOX_ID_LEN + 1];
	uint16_t port;
	bool by_host;	    /* the sandbox has an origin of its own */
	const char *prefix; /* the part of the path that the server does not see; empty: none */
	size_t prefix_len;
	const char *path; /* what it sees: path and query, beginning with a slash */
	size_t path_len;
};

/* Reads "PORT-ID.DOMAIN", with or without a port after it. `domain` is the setting sandbox_domain.
 * Sets id and port. */
bool port_target_host(struct port_target *t, const char *host, size_t len, const char *domain);
/* Reads "[/r/REGION]/v1/sandboxes/ID/ports/PORT/...", a path without authority. */
bool port_target_path(struct port_target *t, const char *path, size_t len, const char *region);
/* Finds the target of a request; `authority` is that of the Host header or :authority. */
bool port_target_find(struct port_target *t, const char *authority, size_t authority_len,
		      const char *path, size_t path_len, const char *domain, const char *region);

/* Reads a port: 1 to 65535, without leading zeros. Returns 0 when it is invalid. */
uint16_t port_number(const char *text, size_t len);

/* Finds the first PORT_PARAMETER in the query of a path. Returns its value and sets *len; NULL when
 * there is none. */
const char *port_query_token(const char *path, size_t path_len, size_t *len);
/* Writes the path without any PORT_PARAMETER to `out`, which has as many bytes. Returns the length.
 */
size_t port_query_strip(char *out, const char *path, size_t path_len);

#endif
