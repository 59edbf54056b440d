// SPDX-License-Identifier: Apache-2.0
/* Private declarations of this room. */
#ifndef RAMET_ORCHESTRATOR_HTTP_INTERNAL_H
#define RAMET_ORCHESTRATOR_HTTP_INTERNAL_H

#include "base/list.h"
#include "orchestrator/http/counters.h"
#include "orchestrator/http/dispatch.h"
#include "orchestrator/http/rate.h"
#include "orchestrator/store/keys.h"

#define ACCESS_LOG_SIZE (32u << 10)

/* A client that resets RESETS_MAX requests within RESETS_WINDOW_MS is disconnected: an HTTP/2 reset
 * costs it nothing, while the work that the request started here continues. */
#define RESETS_MAX	 200
#define RESETS_WINDOW_MS 10000
/* A peer must prove again who it is after so long: it may have been removed from the fleet. */
#define PEER_CONN_MS 60000

struct conn {
	struct list link;
	struct http *http;
	h2o_socket_t *sock;
	struct client peer;
	bool local;   /* from this machine, or through a listener that only this machine reaches */
	bool proxied; /* from one of trusted_proxies, or from a peer */
	bool from_peer;
	uint64_t began_ms;
	unsigned requests; /* in flight on it */
	bool cut;
	unsigned resets;
	uint64_t resets_since_ms;
};

struct http {
	struct loop *loop;
	struct service *service;
	struct keys *keys;
	const struct config *config;
	struct http_ops ops;
	struct api *api;

	h2o_globalconf_t h2o_config;
	h2o_context_t h2o;
	h2o_accept_ctx_t accept;
	h2o_socket_t *listener; /* NULL once draining */
	h2o_accept_ctx_t peer_accept;
	h2o_socket_t *peer_listener; /* for other hosts of the fleet; NULL: none */
	bool (*peer_known)(void *arg, const struct client *from);
	void *peer_arg;
	bool accept_paused;
	bool loopback; /* the listener has a loopback address */
	unsigned port;

	struct list conns;	 /* least recently active first */
	uint64_t full_logged_ms; /* when the log last reported too many connections; 0: never */
	struct list live;	 /* requests that have not ended */
	struct list dirty;	 /* streams to flush this turn */
	struct list upgraded;	 /* connections that have changed their protocol */
	struct loop_timer tick;

	bool draining;
	void (*drained)(void *arg);
	void *drained_arg;
	struct loop_timer drain_limit;

	size_t reading_bytes; /* bytes of bodies that wait for workers */
	struct rate rates[LIMITS];
	struct idem idem; /* answers to requests with an Idempotency-Key */
	struct list left; /* requests whose call continues although nobody waits for the answer */
	uint64_t limited_logged_ms[LIMITS]; /* when the log last reported the limit; 0: never */
	struct counters counters;
	int spans; /* socket to ramet-notify; -1: spans are not sent */
	size_t log_len;
	char log[ACCESS_LOG_SIZE];
};

/* A body that is passed on as it arrives. */
struct body_stream {
	uint64_t left;	    /* bytes that have not arrived; AGENT_UNSIZED: unknown */
	uint64_t bytes;	    /* that have arrived */
	uint64_t asked_ms;  /* when the next part was asked for; 0: it was not */
	uint64_t waited_ms; /* time that the client was waited for, in all */
};

/*
 * A request and its answer, from the request's arrival until h2o has released it and no callback is
 * outstanding. Output is gathered in `r.out` and given to h2o one chunk at a time, from `sending`.
 */
struct exchange {
	struct request r;
	struct conn *conn;	  /* valid as long as `r.req` */
	bool local;		  /* from this machine, and no header says otherwise */
	bool offers_key;	  /* the client sent a key, and keys exist */
	enum key_verdict verdict; /* verdict on the key */
	/* the answer may show what the tier of an operator's key permits */
	bool as_operator;
	unsigned refs; /* held by h2o, a call, a body being read, the poll */
	struct list link, dirty_link;
	struct trace_parent parent; /* the parsed r.traceparent */
	struct span *span;	    /* NULL: no span is recorded */

	h2o_generator_t generator; /* its callbacks find the request through it */
	struct text sending;
	size_t bytes;
	int status;
	bool head_due;	   /* the head is sent even if no output follows soon */
	bool in_flight;	   /* h2o has `sending` */
	bool broken;	   /* the answer is cut off after `out` */
	bool finished;	   /* h2o has the whole answer */
	uint64_t moved_ms; /* when h2o was last given output, or asked for more */

	struct loop_op *peer_poll; /* HTTP/1: detects that the client left */
	bool paused;		   /* the service was asked to pause the operation */
	bool limited;		   /* refused by limit_request */
	struct idem_entry *keyed;  /* has an Idempotency-Key and is not answered yet */
	struct list left_link;
	struct body_stream body;
};

static inline struct exchange *exchange(const struct request *r)
{
	return container_of(r, struct exchange, r);
}

/* --- request.c: life cycle; answer.c: answers ----------------------------------------------- */

struct request *request_new(struct http *h, h2o_req_t *req);
/* Returns true when both have the same tenant. The tenant of `r` must be known. */
bool request_same_tenant(const struct request *r, const struct request *other);
/* Watches for the client's end. */
void request_watch(struct request *r);
void request_unwatch(struct request *r);
/* h2o has sent the previous chunk and wants more. */
void answer_proceed(h2o_generator_t *generator, h2o_req_t *req);
/* Called once a second for each live request: handles silence, stalled readers and clients that
 * left. */
void request_tick(struct request *r, uint64_t now_ms);
void http_flush(void *arg); /* the loop's before_sleep */

/* --- status.c ------------------------------------------------------------------------------- */

/* Returns the HTTP status of a failure of the service. `code` is not FAIL_NONE. */
int failure_status(enum failure_code code);

/* --- body-stream.c: bodies that are passed on as they arrive ---------------------------------- */

/* h2o's should_stream_entity. */
int body_streams(h2o_req_t *req);
/* Ends a request whose client is too slow. */
void body_tick(struct request *r, uint64_t now_ms);

/* --- server.c ------------------------------------------------------------------------------- */

void http_request_began(struct http *h, struct request *r);
void http_request_ended(struct http *h, struct request *r);

/* --- listen.c ------------------------------------------------------------------------------- */

/* Loads the certificate, if TLS is configured, and opens the listener. Returns 0, or -errno with a
 * text for the operator. */
int listen_start(struct http *h, struct err *e);
void listen_stop(struct http *h);
/* Returns the connection of a request. */
struct conn *conn_of(h2o_req_t *req);
/* Counts a new request on its connection, and returns the connection. conn_ended must be called
 * when the request ends. */
struct conn *conn_began(h2o_req_t *req);
void conn_count_reset(struct conn *c);

/* --- limit.c: rate limits ------------------------------------------------------------------- */

void limit_init(struct http *h);
/* Returns whether a connection from `peer` may begin now. */
bool limit_connection(struct http *h, const struct client *peer, bool local);

/* --- keyed.c: idempotent requests ------------------------------------------------------------- */

/* Has the service record the request's key, if it has one, with what r->op makes. To be called
 * once, before the loop's next turn. */
void keyed_called(struct request *r);
/* Returns whether the call must continue although nobody waits for the answer; if so, adds the
 * request to http.left. */
bool keyed_continues(struct request *r);
/* Abandons the calls that continue, and drops all answers. */
void keyed_close(struct http *h);

/* --- guard.c: access control ---------------------------------------------------------------- */

/* Ends the requests in flight whose keys were revoked, and those answered as an operator's whose
 * keys are no operators' keys any more. */
void guard_cut_revoked(struct http *h);
/* Finds the key in an Authorization header's value. Returns false when there is none. */
bool guard_bearer(const char *value, size_t len, const char **key, size_t *key_len);
/* Returns whether a Host header's value is an address, localhost, or the host of `endpoint`. */
bool guard_host_is_ours(const char *host, size_t len, const char *endpoint);

/* --- access.c: the access log ----------------------------------------------------------------- */

/* Returns the loggable part of a request's target: without query and authority, which may contain
 * secrets, and cut to a maximum length. */
h2o_iovec_t access_path(h2o_iovec_t path);
void access_log_request(struct http *h, const struct request *r);
/* Logs an answer that h2o gave by itself. */
void access_log_refused(struct http *h, h2o_req_t *req);
void access_flush(struct http *h);

#endif
