// SPDX-License-Identifier: Apache-2.0
/* The HTTP face of the service: docs/api.md. Everything here runs on the loop's thread. */
#ifndef RAMET_ORCHESTRATOR_API_SERVER_H
#define RAMET_ORCHESTRATOR_API_SERVER_H

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/core/core.h"
#include "orchestrator/io/loop.h"

struct api;

/*
 * Listens and serves from the loop's next turn on. `loop`, `core` and `config` outlive it. Fails
 * with a sentence that names host and port when they can't be had, the file when a certificate is
 * wrong, and when the address is reachable from elsewhere without keys and TLS.
 */
int api_new(struct api **out, struct loop *loop, struct core *core, const struct config *config,
	    struct err *e);

/* The port it listens on: the one asked for, or the one the kernel chose for 0. */
unsigned api_port(const struct api *a);

/* Stops accepting connections, answers new requests with 503, and calls `done` when the requests
 * under way have ended, or after config's stop_timeout_s. */
void api_drain(struct api *a, void (*done)(void *arg), void *arg);

/* Cuts what is still open. Outside of loop_run only, and before core_free. */
void api_free(struct api *a);

/* Figures of what is beside the API, for /metrics. */
struct api_watched {
	uint64_t log_dropped;
	uint64_t audit_lines, audit_lost, audit_failures, audit_waiting_bytes;
	uint64_t webhooks_delivered, webhooks_failures, webhooks_dropped;
	uint64_t webhooks_behind; /* lines of the audit log not dealt with yet */
};
typedef void api_watch_fn(void *arg, struct api_watched *out);
/* `fn` fills them in when they are asked for. */
void api_watch(struct api *a, api_watch_fn *fn, void *arg);

#endif
