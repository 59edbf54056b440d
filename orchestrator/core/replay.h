// SPDX-License-Identifier: Apache-2.0
/* The last events of a sandbox, bounded in number and in bytes; the oldest go first. */
#ifndef RAMET_ORCHESTRATOR_CORE_REPLAY_H
#define RAMET_ORCHESTRATOR_CORE_REPLAY_H

#include "orchestrator/core/core.h"

#define REPLAY_EVENTS_MAX 1000
/* The longest line and its exit are kept whole. */
#define REPLAY_BYTES_MAX (5u << 20)

struct replay_entry;

struct replay {
	struct replay_entry *entries; /* ring of REPLAY_EVENTS_MAX; made with the first event */
	size_t first, count, bytes;
};

/* Copies the event, whose number is higher than that of each before it; one that there is no memory
 * for is left out. `traceparent` may be NULL. */
void replay_add(struct replay *r, const struct event *ev, const char *traceparent);
/* To an empty one. -ENOMEM, and it stays empty. */
int replay_copy(struct replay *to, const struct replay *from);
void replay_each(const struct replay *r,
		 void (*each)(void *arg, const struct event *ev, const char *traceparent),
		 void *arg);
/* The first event with a later number than `seq`, or NULL. */
const struct event *replay_after(const struct replay *r, uint64_t seq, const char **traceparent);
/* The number of the last one; 0 when there is none. */
uint64_t replay_last(const struct replay *r);
void replay_fini(struct replay *r);

#endif
