// SPDX-License-Identifier: Apache-2.0
/* The HTTP API of the service (docs/api.md). Everything here runs on the loop's thread. */
#ifndef RAMET_ORCHESTRATOR_API_API_H
#define RAMET_ORCHESTRATOR_API_API_H

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/sandbox/sandboxes.h"

struct api;

/*
 * Listens, and serves from the loop's next turn on. `loop`, `service` and `config` must outlive it.
 * Fails with an error text: the host and port that cannot be used, the file of an invalid
 * certificate, or an address reachable from other machines without keys and TLS.
 */
int api_new(struct api **out, struct loop *loop, struct service *service,
	    const struct config *config, struct err *e);

/* Returns the port it listens on, also when the kernel chose it for port 0. */
unsigned api_port(const struct api *a);

/* Stops accepting connections, answers new requests with 503, and calls `done` when the requests in
 * flight have ended, or after config's stop_timeout_s. */
void api_drain(struct api *a, void (*done)(void *arg), void *arg);

/* Returns the connections to other hosts of the fleet (orchestrator/peers/peers.h); NULL: none. */
struct peers *api_peers(const struct api *a);

/* Ends the requests in flight, closes all connections and frees the API. Called outside of
 * loop_run, and before service_free. */
void api_free(struct api *a);

/* Sends a span of each request to create, call, fork, freeze or resume to this socket, which stays
 * the caller's, as packets (orchestrator/events/span.h). */
void api_trace(struct api *a, int socket);

/* Counters of other parts of the service, for /metrics. */
struct api_watched {
	uint64_t log_dropped;
	uint64_t events; /* added to the audit log */
	uint64_t webhooks_delivered, webhooks_failures, webhooks_dropped;
	uint64_t spans_sent, spans_dropped; /* by ramet-notify */
	uint64_t webhooks_behind;	    /* lines of the audit log not processed yet */
};
typedef void api_watch_fn(void *arg, struct api_watched *out);
/* Sets the function that fills in these counters on request. */
void api_watch(struct api *a, api_watch_fn *fn, void *arg);

#endif
