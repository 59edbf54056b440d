// SPDX-License-Identifier: Apache-2.0
/* Which handler serves a method and path. Knows nothing of h2o, so that it can be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_API_ROUTE_H
#define RAMET_ORCHESTRATOR_API_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "orchestrator/core/core.h"

struct request;

/* What /metrics has a histogram of. */
enum timed { TIMED_NOT, TIMED_CREATE, TIMED_FORK, TIMED_RESUME, TIMED_EXEC, TIMED_KINDS };

struct route {
	const char *method;
	/* "/v1/sandboxes/{id}"; what is in braces is an id: of an upload in {upload}, of a
	 * terminal in {pty}, else of a sandbox. */
	const char *pattern;
	void (*serve)(struct request *r);
	enum timed timed;   /* from the request to its answer, of those that went well */
	bool quiet;	    /* asked by machines all day: logged at debug level */
	bool for_anyone;    /* needs no key, and is served to browsers too: see guard.c */
	bool for_operators; /* needs the key of one, once there are keys */
	bool keyed;	    /* its answer is remembered by its Idempotency-Key */
	bool goes_on;	    /* one with such a key goes on when its client leaves */
};

/* The table of all that is served (routes.c). */
extern const struct route routes[];
extern const size_t n_routes;

enum route_result {
	ROUTE_FOUND,
	ROUTE_NONE,	/* 404: no such path */
	ROUTE_SLASH,	/* 404: the path exists without the slash at its end */
	ROUTE_REGION,	/* 404: /r/REGION/ of another region */
	ROUTE_ID,	/* 404: the id of a sandbox can't be one */
	ROUTE_UPLOAD,	/* 404: the same, of an upload */
	ROUTE_PTY,	/* 404: the same, of a terminal */
	ROUTE_SPACE,	/* 404: the same, of a Space */
	ROUTE_METHOD,	/* 405: allow names the methods */
	ROUTE_MALFORMED /* 400: the path is no path */
};

struct route_match {
	const struct route *route;
	char id[2][SANDBOX_ID_LEN + 1]; /* in the order of the pattern; empty: it has none */
	char allow[64];			/* "DELETE, GET, HEAD" */
};

/* HEAD is served where GET is. `path` is as sent: percent-encoded, with or without a query. */
enum route_result route_find(struct route_match *m, const char *method, size_t method_len,
			     const char *path, size_t path_len, const char *region);
/* Host and port of a path in absolute form ("http://host/path"), which a server takes as well (RFC
 * 9112 3.2.2); NULL: it has none. */
const char *route_authority(const char *path, size_t path_len, size_t *len);
/* A prefix of four characters and 32 hexadecimal digits. */
bool id_valid(const char *prefix, const char *id, size_t len);

#endif
