// SPDX-License-Identifier: Apache-2.0
/* The drain of this host: it gets no new sandboxes, except by forks, and those that it has leave.
 */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_DRAIN_H
#define RAMET_ORCHESTRATOR_SANDBOX_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

/* A persistent sandbox is frozen once it has been idle for this time. Without such a time, a freeze
 * that fails for lack of disk space would begin again at once. */
#define DRAIN_IDLE_S 5

struct service;
struct failure;

struct drain {
	bool on;
	int64_t deadline_at_ms; /* since the epoch: all lifetimes end then at the latest; 0: none */
	uint64_t deadline_ms;	/* the same on the boot-time clock */
};

/* Starts, changes or ends the drain. */
void service_drain(struct service *c, bool on, int64_t deadline_at_ms);
/* Returns whether the host may have new sandboxes; else false with *f filled. */
bool drain_allows(const struct service *c, struct failure *f);

#endif
