// SPDX-License-Identifier: Apache-2.0
/*
 * Processes for operations on files. Each takes over the connection with its unsent bytes and talks
 * to the host itself (worker-io.h), so that a slow disk or host delays nobody else. After its end
 * the connection carries the next operation. The agent has read nothing beyond the request's frame,
 * so there is no input to hand over.
 */
#ifndef RAMET_GUEST_FILES_WORKER_H
#define RAMET_GUEST_FILES_WORKER_H

#include "guest/conn.h"

#define WORKER_COUNT_MAX 32

struct staged_file;

struct worker_job {
	void (*run)(const void *request); /* runs in the new process, which ends with it */
	const void *request;		  /* valid until worker_start returns */
	bool watches; /* may run for long: counts as one of AGENT_WATCH_MAX further workers */
};

/* `on_free` is called when a worker has ended. */
void worker_init(void (*on_free)(void));
/* Returns false when all workers are busy, not counting watches; wait for on_free then. */
bool worker_is_free(void);
/*
 * Starts a worker; the connection is CONN_WORKER until it ends. `c` may be NULL. Returns 0, or
 * -errno with nothing started.
 */
int worker_start(struct conn *c, const struct worker_job *job, struct err *e);
/* Kills the worker of a connection that is gone. */
void worker_on_gone(struct conn *c);

/* Returns the staged file of this worker, new at its start. What the worker leaves of it is removed
 * after its end. */
struct staged_file *worker_staged(void);

#endif
