// SPDX-License-Identifier: Apache-2.0
/*
 * The HTTP server: its listener, connections and requests, their limits, the keys of clients, and
 * the answers that are remembered. It knows no routes: its owner serves the requests.
 */
#ifndef RAMET_ORCHESTRATOR_HTTP_SERVER_H
#define RAMET_ORCHESTRATOR_HTTP_SERVER_H

#include <h2o.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/io/loop.h"

struct api; /* the owner; opaque here */
struct service;
struct http;
struct keys;
struct request;
struct route;

/* Limits of the server. They are variable only for tests. */
extern struct http_limits {
	/* Time for a client to send a whole request, and for an idle connection. */
	uint32_t read_ms;
	uint32_t body_rate;  /* bytes per second of a body that is passed on: see body_tick */
	uint32_t write_ms;   /* time for a client to take some of the output that waits for it */
	uint32_t silence_ms; /* time without output after which a stream gets an empty line */
	uint32_t tick_ms;
	size_t connections; /* maximum of open connections */
	size_t requests;    /* in flight on all connections: each holds some 10 KiB */
	/* Bytes that wait for readers; above it no long answer is begun, and no long event is added
	 * to a stream. */
	size_t answers_bytes;
	/* Bytes of bodies in flight; above it only short bodies are accepted. */
	size_t bodies_bytes;
	size_t read_here_bytes; /* bytes of a body; a worker parses longer ones */
	size_t reading_bytes;	/* bytes of bodies that wait for workers */
} http_limits;

struct failure;

struct http_ops {
	const struct route *routes; /* the routes whose requests are counted */
	size_t n_routes;
	/* Serves a new request (dispatch.h). */
	void (*serve)(struct request *r);
	/* Returns whether the request's body is passed on as it arrives. */
	bool (*streams)(const struct api *api, h2o_req_t *req);
	/* Keys may have been revoked, or have got other tiers. Called after such changes, and once
	 * a second while there are requests. */
	void (*revoked)(struct api *api);
	/* Ends what is left of connections that have changed their protocol. */
	void (*closing)(struct api *api);
	/* Adds header fields to an answer for another host of the fleet. */
	void (*to_peer)(struct request *r);
	/* Called when the client asks only for a remembered answer, which this host does not have.
	 * Returns whether other hosts are asked. If they are not, or none of them has it,
	 * keyed_unknown (dispatch.h) answers. */
	bool (*unknown)(struct request *r);
	/* A limit of the tenant is reached on this host: returns whether other hosts of the fleet
	 * are asked for a part of theirs, after which the request is served again. */
	bool (*capped)(struct request *r, const struct failure *f);
};

/* Prepares a server, which listens after http_listen. Besides `ops`, all that it gets must
 * outlive it. */
struct http *http_new(struct loop *loop, struct service *service, struct keys *keys,
		      const struct config *config, const struct http_ops *ops, struct api *api);
/* Fails with an error text: the host and port that cannot be used, the file of an invalid
 * certificate, or an address reachable from other machines without keys and TLS. */
int http_listen(struct http *h, struct err *e);
/* Return what http_listen would return for the files of the certificate and its key, and for the
 * address. `any_key`: keys_any. */
int http_check_tls(const struct config *config, struct err *e);
int http_check_exposure(const struct config *config, bool any_key, struct err *e);
struct client;
/* Also listens for other hosts of the fleet, who pass requests on and are admitted by `tls`, which
 * must outlive the server. `known` returns whether an address belongs to one of them: the number of
 * connections from it is not limited. */
int http_listen_peers(struct http *h, const char *address, SSL_CTX *tls,
		      bool (*known)(void *arg, const struct client *from), void *arg,
		      struct err *e);
/* Fills in *e with what OpenSSL could not do, with the file that it is about, and OpenSSL's reason.
 * Returns -EINVAL. */
int http_tls_failed(struct err *e, const char *what, const char *file);
/* Returns the port it listens on, also when the kernel chose it for port 0. */
unsigned http_port(const struct http *h);
/* Stops accepting connections, and calls `done` when the requests in flight have ended, or after
 * config's stop_timeout_s. The owner answers new requests with 503. */
void http_drain(struct http *h, void (*done)(void *arg), void *arg);
bool http_is_draining(const struct http *h);
/* Sends the spans of requests to this socket. */
void http_trace(struct http *h, int socket);
/* Ends the requests in flight, closes all connections and frees the server. Called outside of
 * loop_run. Returns false if a connection is left, which keeps the server and its owner in use. */
bool http_free(struct http *h);

#endif
