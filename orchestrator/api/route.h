// SPDX-License-Identifier: Apache-2.0
/* Finds the handler for a method and path. Independent of h2o, so that it can be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_API_ROUTE_H
#define RAMET_ORCHESTRATOR_API_ROUTE_H
#include <stdbool.h>
#include <stddef.h>

#include "orchestrator/events/span.h"
#include "orchestrator/sandbox/sandboxes.h"

struct request;

/* Requests with a histogram in /metrics. */
enum timed { TIMED_NOT, TIMED_CREATE, TIMED_FORK, TIMED_RESUME, TIMED_EXEC, TIMED_KINDS };

struct route {
	const char *method;
	/* "/v1/sandboxes/{id}"; braces contain the kind of an id: {pty}, {process}, {space},
	 * {port}, or for a sandbox any other word. */
	const char *pattern;
	void (*serve)(struct request *r);
	enum timed timed;     /* measured from the request to its answer, when successful */
	enum span_kind span;  /* of its requests, if spans are sent */
	bool quiet;	      /* polled by machines: logged at debug level */
	bool for_anyone;      /* needs no key, and is served to browsers too: see guard.c */
	bool for_operators;   /* needs an operator's key, once keys exist */
	bool streams;	      /* takes bodies of any size: see body-stream.c */
	bool keyed;	      /* its answer is remembered by its Idempotency-Key (keyed.c) */
	bool outlives_client; /* with such a key, its call continues when the client leaves */
};

/* Returns whether requests of the route may change something. */
bool route_changes(const struct route *route);

/* All routes, which are generated from openapi.json. */
extern const struct route routes[];
extern const size_t n_routes;

enum route_result {
	ROUTE_FOUND,
	ROUTE_NONE,	/* 404: no such path */
	ROUTE_SLASH,	/* 404: the path exists without its final slash */
	ROUTE_REGION,	/* 404: /r/REGION/ of another region */
	ROUTE_ID,	/* 404: invalid id of a sandbox */
	ROUTE_PTY,	/* 404: invalid id of a terminal */
	ROUTE_PROCESS,	/* 404: invalid id of a process */
	ROUTE_CONTEXT,	/* 404: invalid id of a context */
	ROUTE_SPACE,	/* 404: invalid id of a Space */
	ROUTE_PORT,	/* 404: invalid port */
	ROUTE_METHOD,	/* 405: `allow` has the methods */
	ROUTE_MALFORMED /* 400: the path is malformed */
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
/* Returns the host and port of a request target in absolute form ("http://host/path"), which
 * servers must accept (RFC 9112 3.2.2), and sets *len to their length. Returns NULL for other
 * forms. */
const char *route_authority(const char *path, size_t path_len, size_t *len);
/* Returns whether `id` is `prefix`, of four characters, followed by 32 hexadecimal digits. */
bool id_valid(const char *prefix, const char *id, size_t len);

#endif
