// SPDX-License-Identifier: Apache-2.0
/*
 * ramet-notify sends events of the audit log to the webhook, and spans to a collector. It is a
 * separate process with its own user, which can use the network and two sockets of the service, and
 * nothing else: the code that talks to other hosts has access to nothing valuable. The service
 * gives it the events (daemon/outbox.h).
 */
#ifndef RAMET_ORCHESTRATOR_EVENTS_NOTIFY_H
#define RAMET_ORCHESTRATOR_EVENTS_NOTIFY_H

#include <stdint.h>

/* Descriptors that ramet-notify inherits. */
#define NOTIFY_SOCKET_FD   3 /* SOCK_SEQPACKET, to the service: requests and events */
#define NOTIFY_CONFIG_FD   4 /* a memfd with a struct config */
#define NOTIFY_COUNTERS_FD 5 /* shared memory with a struct notify_counters */
#define NOTIFY_SPANS_FD	   6 /* SOCK_SEQPACKET, from which it reads a struct span each */

/* Asks for the next event. The answer is its line, as soon as there is one; none comes when the
 * service has restarted since, so ask again after a while. */
struct notify_request {
	uint64_t done; /* number of the last event that was handled; 0: none since the start */
};

/* Written by ramet-notify, read by the service for /metrics. Each is atomic, but they are not
 * updated together. */
struct notify_counters {
	uint64_t delivered, failures; /* successful and failed posts */
	uint64_t dropped;	      /* events given up after a day */
	uint64_t spans_sent, spans_dropped;
};

/* Adds to one of the counters, each of which has one writer. */
static inline void notify_count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

#endif
