// SPDX-License-Identifier: Apache-2.0
/*
 * ramet-notify: sends the lines of the audit log to the webhook. A process of its own, of a user of
 * its own, that can read the log and keep its cursor, and nothing else: what talks to strangers
 * holds nothing of worth. The log is its queue, so a crash of it, of the service or of the host
 * loses no event; some may come twice.
 */
#ifndef RAMET_ORCHESTRATOR_NOTIFY_NOTIFY_H
#define RAMET_ORCHESTRATOR_NOTIFY_NOTIFY_H

#include <stdint.h>

/* What it finds open. */
#define NOTIFY_AUDIT_FD	   3 /* the folder of the audit log */
#define NOTIFY_OWN_FD	   4 /* a folder it may write to */
#define NOTIFY_CONFIG_FD   5 /* a memfd with a struct config */
#define NOTIFY_COUNTERS_FD 6 /* shared memory with a struct notify_counters */

/* Written by ramet-notify, read by the service for /metrics; each on its own, no order. */
struct notify_counters {
	uint64_t delivered, failures; /* posts that went well, that did not */
	uint64_t dropped;	      /* events given up after a day, or gone from the log */
	uint64_t done;		      /* number of the last line that is dealt with */
};

#endif
