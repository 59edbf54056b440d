// SPDX-License-Identifier: Apache-2.0
/* The steps of serving a request, for the server's owner, and what the passing on of requests to
 * servers in sandboxes needs besides http.h. */
#ifndef RAMET_ORCHESTRATOR_HTTP_DISPATCH_H
#define RAMET_ORCHESTRATOR_HTTP_DISPATCH_H

#include <h2o.h>
#include <h2o/http1.h> /* needs h2o.h */

#include "orchestrator/http/server.h"
#include "orchestrator/http/http.h"
#include "orchestrator/http/idempotency.h"
#include "orchestrator/http/route.h"

struct conn;

/* --- before the handler: each that returns false has answered the request ----------------------
 */

/* Sets the request's tenant, if it has a valid key. */
void guard_identify(struct request *r);
/* Returns whether keys exist. */
bool guard_has_keys(const struct request *r);
/* Returns false when the request was refused; otherwise the tenant is set. */
bool guard_admits(struct request *r);

/* The verdict on the token for a port of a sandbox. */
enum port_token { PORT_TOKEN_NONE, PORT_TOKEN_GOOD, PORT_TOKEN_WRONG };
/* Returns false when the client or its tenant has sent too many requests. Call it after
 * guard_identify. */
bool limit_request(struct request *r, enum port_token token);
/* Returns false when too many requests are in flight. */
bool request_has_room(struct request *r);
/* Like request_has_room, for the request's body. */
bool request_body_has_room(struct request *r);

/* Handles the request's Idempotency-Key, if there is one. Returns false when the request was
 * answered: with the first answer to this key, or with a refusal. */
bool keyed_begin(struct request *r);
/* Answers a request that only asks for a remembered answer: there is none. */
void keyed_unknown(struct request *r);
/* Returns the remembered answers. */
struct idem *keyed_answers(struct http *h);

/* --- after it --------------------------------------------------------------------------------- */

/* To be called after the function that serves the request. If that has started a call, gives the
 * call the request's key. If the route changes something, also has the client's end detected at
 * once instead of at the next tick: the service undoes what an abandoned call has made if only
 * its client would have known of it. The server calls this for all routes, so that none can
 * forget it. */
void request_began(struct request *r);

/* --- requests that are passed on ---------------------------------------------------------------
 */

/* Returns "http" or "https": the scheme by which the client reached the service. */
const char *request_scheme(const struct request *r);
/* Like answer_begin, for the answer of a server in a sandbox. `reason` must live as long as the
 * request; the headers are set already. */
void stream_begin_as(struct request *r, int status, const char *reason, size_t length);
/* Ends the request and its HTTP/1 connection, with this answer if none was begun. */
void request_cut(struct request *r, int status, const char *code, const char *reason);
/* The same, for a failure. */
void request_fail(struct request *r, const struct failure *f);
/* Notes that bytes were passed on: the request is not stalled. */
void request_moved(struct request *r);
/* Returns whether another host of the fleet has passed the request on to this one. */
bool http_is_from_peer(const h2o_req_t *req);
/* Returns whether h2o has the whole answer. */
bool request_is_finished(const struct request *r);

/* Answers 101, after which h2o hands over the client's connection by calling `fn` with `arg`. The
 * caller owns the request's call from then on. Sets *conn, which the caller passes to conn_ended in
 * the end. */
void request_upgrade(struct request *r, struct conn **conn, h2o_http1_upgrade_cb fn, void *arg);
void conn_ended(struct conn *c);
void conn_cut(struct conn *c);
/* Returns whether each direction of the connection can end on its own: not over TLS, unless it is
 * from another host of the fleet. */
bool conn_ends_apart(const struct conn *c);
/* Returns a list for objects of upgraded connections. While it has any, ops.revoked is called. */
struct list *http_upgraded(struct http *h);

#endif
