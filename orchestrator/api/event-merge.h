// SPDX-License-Identifier: Apache-2.0
/*
 * Merges the events of several hosts into the order of time. Each host has its events in the order
 * of their numbers. The merge goes in turns. In each turn, every host gives some of its events
 * behind the last position. The merge writes the first of them, up to the last event of a host that
 * has more. Times are those of struct logged_event, so that a clock that was set back changes no
 * order.
 *
 * Independent of requests, so that it can be fuzzed: other hosts' events are hostile.
 */
#ifndef RAMET_ORCHESTRATOR_API_EVENT_MERGE_H
#define RAMET_ORCHESTRATOR_API_EVENT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/api/page-key.h"
#include "orchestrator/json/text.h"
#include "orchestrator/store/store.h"

/* Maximum of bytes of a part, which one time and newline may exceed: peers_ask takes 256 KiB. */
#define EVENTS_PART_SIZE (192u << 10)

/* Where an event is in the order of all. */
struct event_moment {
	int64_t at_ms;
	uint32_t host;
	uint64_t n;
};

struct event_merge {
	/* Set by the caller before the first turn: */
	bool newest_first;
	uint64_t left;		   /* events that may still be written */
	bool is_begun;		   /* `after` is the position behind which the merge goes on */
	struct event_moment after; /* of the last event that was written */
	/* Private: the present turn. */
	struct event_merge_line *lines;
	size_t n, room, bytes;
	bool more;    /* events that were left out follow */
	bool bounded; /* some host may have events behind `bound` that have not arrived */
	struct event_moment bound;
};

/* The events of one host in a turn, in their order. */
struct event_part {
	struct event_moment last; /* of the part so far */
	size_t n, bytes;
	bool more; /* the host has more events than those that were added */
	bool bad;  /* an event was not a possible next one; it and what follows are left out */
};

/* Returns the maximum of events of a host that a turn can use. */
size_t event_merge_wanted(const struct event_merge *m);
/* Returns the position behind which a host's events belong to this turn. */
struct event_position event_merge_from(const struct event_merge *m, uint32_t host);

/* A host's part: begin, add its events in their order, set `more` if the host has more, end.
 * The line is copied. From the first event on that does not fit, events are left out, and `more`
 * is set. */
struct event_part event_part_begin(const struct event_merge *m, uint32_t host);
void event_part_add(struct event_merge *m, struct event_part *p, const struct logged_event *event);
void event_part_end(struct event_merge *m, const struct event_part *p);

/* Writes an event for another host: the time by which it is merged, a space, the line, a newline.
 */
void event_part_write(struct text *out, const struct logged_event *event);
/* Adds the part of another host, which event_part_write wrote there. `more`: the host has more
 * events. Returns false, with nothing changed, if the part is malformed. */
bool event_merge_take(struct event_merge *m, uint32_t host, const char *part, size_t len,
		      bool more);

/* Ends the turn: writes the events that are certain to be next, each with a newline. Returns how
 * many. *more: events follow, or may follow. */
size_t event_merge_write(struct event_merge *m, struct text *out, bool *more);
/* Drops the present turn. */
void event_merge_drop(struct event_merge *m);

#endif
