// SPDX-License-Identifier: Apache-2.0
/*
 * Operations on files, from the agent's side: a process for each takes the connection over, with
 * what is still to be sent on it, and speaks to the host itself (peer.h), so that a slow disk or a
 * slow host holds nobody else up. When it has ended, the connection carries the next operation.
 * No byte beyond the request's frame was read, so there is none to be handed over.
 */
#ifndef RAMET_GUEST_WORKER_H
#define RAMET_GUEST_WORKER_H

#include "guest/conn.h"
#include "guest/draft.h"

#define WORKER_COUNT_MAX 32

struct worker_job {
	void (*run)(const void *request); /* in the new process, which ends in it */
	const void *request;		  /* good until worker_start returns */
	struct draft *draft;		  /* what it writes, see draft_use; may be NULL */
};

/* `on_free` is called when a worker has ended. */
void worker_init(void (*on_free)(void));
/* False: wait for on_free. */
bool worker_is_free(void);
/*
 * Starts a worker; the connection is CONN_WORKER until its end. Without a connection (NULL), it
 * just runs. 0 or -errno: nothing of it runs then, and job->draft was not used.
 */
int worker_start(struct conn *c, const struct worker_job *job, struct err *e);
/* The connection is gone. */
void worker_on_gone(struct conn *c);

#endif
