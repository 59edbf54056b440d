// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room. */
#ifndef RAMET_ORCHESTRATOR_IO_LOOP_INTERNAL_H
#define RAMET_ORCHESTRATOR_IO_LOOP_INTERNAL_H

#include <h2o.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "orchestrator/io/loop.h"
#include "orchestrator/io/uring.h"

/* A binary min-heap of the timers that are set; timers.c. */
struct timers {
	struct loop_timer **at; /* at[0] is due first */
	size_t count, room;
};
void timers_fini(struct timers *t);
/* Returns the milliseconds until the first timer is due: 0 when one is, INT32_MAX when
 * none is set. */
int32_t timers_wait_ms(const struct timers *t, uint64_t now_ms);
void timers_run(struct timers *t, uint64_t now_ms);

/* The worker threads of one pool; workers.c. They write to the eventfd `wake_fd` whenever a job is
 * done. */
struct workers;
int workers_new(struct workers **out, int wake_fd);
/* Waits for the queued jobs, calls their `done` and frees the pool. */
void workers_free(struct workers *w);
int workers_add(struct workers *w, void (*work)(void *arg), void (*done)(void *arg), void *arg);
/* Calls `done` of each job whose `work` has returned. Called on the loop's thread. */
void workers_reap(struct workers *w);

struct loop {
	h2o_loop_t *h2o;
	struct uring uring;
	struct timers timers;
	struct workers *pools[LOOP_NPOOLS]; /* each NULL until the first loop_work */
	h2o_socket_t *ring_sock;	    /* readable while completions wait */
	h2o_socket_t *wake_sock;	    /* readable after loop_stop and when a job is done */
	int wake_fd;
	atomic_bool stop;
	void (*before_sleep)(void *arg);
	void *before_sleep_arg;
};

#endif
