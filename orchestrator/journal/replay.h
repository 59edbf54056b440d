// SPDX-License-Identifier: Apache-2.0
/* The last events of a sandbox, bounded in number and in bytes; the oldest go first. What they take
 * is counted in an account. */
#ifndef RAMET_ORCHESTRATOR_JOURNAL_REPLAY_H
#define RAMET_ORCHESTRATOR_JOURNAL_REPLAY_H

#include "orchestrator/journal/event.h"
#include "orchestrator/journal/output-budget.h"

#define REPLAY_EVENTS_MAX 1000
/* A longest line and its exit are kept whole, in whichever version of this program it was cut. */
#define REPLAY_BYTES_MAX (5u << 20)

struct replay_entry;

struct replay {
	struct output_account *account; /* of the events that are added; may be NULL */
	struct replay_entry *entries;	/* a ring */
	size_t room, first, count, bytes;
};

/* Copies the event, whose number is higher than that of each before it; one that there is no memory
 * for is left out. `traceparent` may be NULL. */
void replay_add(struct replay *r, const struct event *ev, const char *traceparent);
/* To an empty one, which shares the bytes and the account. -ENOMEM, and it stays empty. */
int replay_copy(struct replay *to, const struct replay *from);
/* To an empty one, in whose account all of it counts from here on. */
void replay_move(struct replay *to, struct replay *from);
/* Drops the oldest events until `bytes` are gone, and at least one. */
void replay_drop(struct replay *r, size_t bytes);
/* Returns when its first event was, in ms since 1970; INT64_MAX when there is none. */
int64_t replay_since_ms(const struct replay *r);
void replay_each(const struct replay *r,
		 void (*each)(void *arg, const struct event *ev, const char *traceparent),
		 void *arg);
/* The first event with a later number than `seq`, or NULL. */
const struct event *replay_after(const struct replay *r, uint64_t seq, const char **traceparent);
/* The number of the last one; 0 when there is none. */
uint64_t replay_last(const struct replay *r);
void replay_fini(struct replay *r);

#endif
