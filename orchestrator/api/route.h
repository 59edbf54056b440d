// SPDX-License-Identifier: Apache-2.0
/* Finds the handler for a method and path. Independent of h2o, so that it can be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_API_ROUTE_H
#define RAMET_ORCHESTRATOR_API_ROUTE_H

#include "orchestrator/http/route.h"
#include "orchestrator/sandbox/sandboxes.h"

/* All routes, which are generated from openapi.json. */
extern const struct route routes[];
extern const size_t n_routes;

enum route_result {
	ROUTE_FOUND,
	ROUTE_NONE,	  /* 404: no such path */
	ROUTE_SLASH,	  /* 404: the path exists without its final slash */
	ROUTE_REGION,	  /* 404: /r/REGION/ of another region */
	ROUTE_ID,	  /* 404: invalid id of a sandbox */
	ROUTE_PTY,	  /* 404: invalid id of a terminal */
	ROUTE_PROCESS,	  /* 404: invalid id of a process */
	ROUTE_CONTEXT,	  /* 404: invalid id of a context */
	ROUTE_SPACE,	  /* 404: invalid id of a Space */
	ROUTE_CHECKPOINT, /* 404: invalid id of a checkpoint */
	ROUTE_KEY,	  /* 404: invalid id of a key */
	ROUTE_PORT,	  /* 404: invalid port */
	ROUTE_METHOD,	  /* 405: `allow` has the methods */
	ROUTE_MALFORMED	  /* 400: the path is malformed */
};

struct route_match {
	const struct route *route;
	char id[2][SANDBOX_ID_LEN + 1]; /* in the order of the pattern; empty: none */
	char allow[64];			/* "DELETE, GET, HEAD" */
};

/* Finds the route. HEAD is served where GET is. `path` is as sent: percent-encoded, with or without
 * a query. */
enum route_result route_find(struct route_match *m, const char *method, size_t method_len,
			     const char *path, size_t path_len, const char *region);
/* Returns the route that passes requests with this method on to servers in sandboxes. */
const struct route *route_of_port(const char *method, size_t len);

#endif
