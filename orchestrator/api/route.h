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
	ROUTE_NONE,	/* 404: no such path */
	ROUTE_SLASH,	/* 404: the path exists without its final slash */
	ROUTE_REGION,	/* 404: /r/REGION/ of another region */
	ROUTE_ID,	/* 404: `invalid` is the kind of the invalid id */
	ROUTE_METHOD,	/* 405: `allow` has the methods */
	ROUTE_MALFORMED /* 400: the path is malformed */
};

/* A kind of id in the pattern of a route, and how a path with an invalid one is refused. */
struct id_kind {
	const char *braces; /* its name in patterns; "": any other name stands for a sandbox */
	const char *prefixes[2];
	const char *code, *what, *form;
};

struct route_match {
	const struct route *route;
	const struct id_kind *invalid;
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
