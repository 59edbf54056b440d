// SPDX-License-Identifier: Apache-2.0
/* A route as the server and its owner see it. Independent of h2o, so that paths can be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_HTTP_ROUTE_H
#define RAMET_ORCHESTRATOR_HTTP_ROUTE_H
#include <stdbool.h>
#include <stddef.h>

#include "orchestrator/events/span.h"

struct json_body;
struct request;

/* Requests with a histogram in /metrics. */
enum timed { TIMED_NOT, TIMED_CREATE, TIMED_FORK, TIMED_RESUME, TIMED_EXEC, TIMED_KINDS };

struct route {
	const char *method;
	/* "/v1/sandboxes/{id}"; braces contain the kind of an id: {pty}, {process}, {space},
	 * {other}, {port}, or for a sandbox any other word. */
	const char *pattern;
	/* `serve`, or for a route with a JSON body the other two. */
	void (*serve)(struct request *r);
	const struct json_body *body;
	void (*serve_body)(struct request *r, const void *values);
	enum timed timed;     /* measured from the request to its answer, when successful */
	enum span_kind span;  /* the span of its requests, if spans are sent */
	bool quiet;	      /* polled by machines: logged at debug level */
	bool for_anyone;      /* needs no key, and is served to browsers too: see guard.c */
	bool for_operators;   /* needs an operator's key, once keys exist */
	bool for_admins;      /* needs an admin's key, and does not exist without keys */
	bool streams;	      /* takes bodies of any size: see body-stream.c */
	bool keyed;	      /* its answer is remembered by its Idempotency-Key (keyed.c) */
	bool outlives_client; /* with such a key, its call continues when the client leaves */
};

/* Returns whether requests of the route may change something. */
bool route_changes(const struct route *route);

/* Returns the host and port of a request target in absolute form ("http://host/path"), which
 * servers must accept (RFC 9112 3.2.2), and sets *len to their length. Returns NULL for other
 * forms. */
const char *route_authority(const char *path, size_t path_len, size_t *len);

#endif
