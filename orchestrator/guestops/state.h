// SPDX-License-Identifier: Apache-2.0
/* The state of operations in guests. */
#ifndef RAMET_ORCHESTRATOR_GUESTOPS_STATE_H
#define RAMET_ORCHESTRATOR_GUESTOPS_STATE_H

#include "base/list.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/sandbox/part.h"

struct agent;

#define IDLE_CONNS_MAX 4

/* This room's state for each sandbox, each tenant and the service. */
struct guestops_sandbox {
	struct list ops;     /* operations on files and processes in flight */
	struct list delayed; /* undo operations that wait for the end of a freeze */
	unsigned n_ops, n_listeners;
	struct agent *idle_conns[IDLE_CONNS_MAX]; /* idle connections for operations on files and
						     processes */
	struct loop_timer idle_conn_timer;
};
struct guestops_tenant {
	size_t operations, listeners; /* in flight */
};
struct program_counters {
	uint64_t started, bytes_in, bytes_out;
};
struct guestops_service {
	struct list diffs, merges, staged;				   /* calls in flight */
	size_t operations, listeners;					   /* in flight */
	uint64_t file_calls, file_failures, file_bytes_in, file_bytes_out; /* counters */
	struct program_counters terminals, processes;			   /* with a tty; without */
};
extern struct part guestops_part;
static inline struct guestops_sandbox *guestops_of(const struct sandbox *s)
{
	return part_of_sandbox(&guestops_part, s);
}
static inline struct guestops_tenant *guestops_of_tenant(const struct tenant *t)
{
	return part_of_tenant(&guestops_part, t);
}
static inline struct guestops_service *guestops_of_service(const struct service *c)
{
	return part_of_service(&guestops_part, c);
}
/* Frees the calls in flight when the service is freed. */
void guestops_close(struct service *c);

#endif
