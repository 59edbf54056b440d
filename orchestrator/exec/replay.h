// SPDX-License-Identifier: Apache-2.0
/* The last events of a sandbox, bounded in number and bytes: the oldest are dropped first. Their
 * size is counted in an account. */
#ifndef RAMET_ORCHESTRATOR_EXEC_REPLAY_H
#define RAMET_ORCHESTRATOR_EXEC_REPLAY_H

#include "orchestrator/exec/event.h"
#include "orchestrator/exec/output-budget.h"

#define REPLAY_EVENTS_MAX 1000
/* Room for the largest result, or the longest line, and the exit event of its call. */
#define REPLAY_BYTES_MAX (17u << 20)

struct replay_entry;

struct replay {
	struct output_account *account; /* counts the events that are added; may be NULL */
	struct replay_entry *entries;	/* a ring */
	size_t room, first, count, bytes;
};

/* Adds a copy of the event, whose number must be higher than those before it. When out of memory,
 * the event is left out. `traceparent` may be NULL. */
void replay_add(struct replay *r, const struct event *ev, const char *traceparent);
/* Copies `from` to the empty `to`, which shares the bytes and the account. When out of memory,
 * returns -ENOMEM and leaves `to` empty. */
int replay_copy(struct replay *to, const struct replay *from);
/* Moves the events of `from` to the empty `to`, whose account counts them from then on. */
void replay_move(struct replay *to, struct replay *from);
/* Drops the oldest events until `bytes` are gone, and at least one. */
void replay_drop(struct replay *r, size_t bytes);
/* Returns the time of the first event, in ms since the epoch; INT64_MAX when there is none. */
int64_t replay_since_ms(const struct replay *r);
/* Returns the first event with a higher number than `seq`, or NULL. */
const struct event *replay_after(const struct replay *r, uint64_t seq, const char **traceparent);
/* Returns the number of the last event; 0 when there is none. */
uint64_t replay_last(const struct replay *r);
void replay_fini(struct replay *r);

#endif
