// SPDX-License-Identifier: Apache-2.0
/*
 * ramet-notify sends the lines of the audit log to the webhook, and spans to a collector. It is a
 * separate process with its own user, which can read the log and write its cursor, and nothing
 * else: the code that talks to other hosts has access to nothing valuable. The log is its queue, so
 * a crash of ramet-notify, of the service or of the host loses no event; some may be sent twice.
 */
#ifndef RAMET_ORCHESTRATOR_EVENTS_NOTIFY_H
#define RAMET_ORCHESTRATOR_EVENTS_NOTIFY_H

#include <stdint.h>

/* Descriptors that ramet-notify inherits. */
#define NOTIFY_AUDIT_FD	   3 /* the folder of the audit log */
#define NOTIFY_OWN_FD	   4 /* a folder it may write to */
#define NOTIFY_CONFIG_FD   5 /* a memfd with a struct config */
#define NOTIFY_COUNTERS_FD 6 /* shared memory with a struct notify_counters */
#define NOTIFY_SPANS_FD	   7 /* SOCK_SEQPACKET, from which it reads a struct span each */

/* Written by ramet-notify, read by the service for /metrics. Each is atomic, but they are not
 * updated together. */
struct notify_counters {
	uint64_t delivered, failures; /* successful and failed posts */
	uint64_t dropped;	      /* events given up after a day, or removed from the log */
	uint64_t done;		      /* number of the last line handled */
	uint64_t spans_sent, spans_dropped;
};

#endif
