// SPDX-License-Identifier: Apache-2.0
/*
 * Positions in lists as keys of cursors (json/cursor.h). In a list over all hosts of a fleet, the
 * key also has the host's number, hidden as in an id. Independent of h2o, so that it can be fuzzed.
 */
#ifndef RAMET_ORCHESTRATOR_API_PAGE_KEY_H
#define RAMET_ORCHESTRATOR_API_PAGE_KEY_H

#include "orchestrator/fleet/id.h"
#include "orchestrator/service/service.h"

#define PAGE_MAX 1000 /* maximum of entries in a page */

#define PAGE_KEY_LEN	   (8 + FLEET_ID_BYTES)
#define FLEET_PAGE_KEY_LEN (FLEET_ID_BYTES + PAGE_KEY_LEN)

/* Returns the letter of the list's cursors; `fleet`: of the list over all hosts. */
char page_letter(enum list_kind kind, bool fleet);

void page_key_write(uint8_t key[static PAGE_KEY_LEN], const struct list_position *at);
void page_key_read(struct list_position *at, enum list_kind kind,
		   const uint8_t key[static PAGE_KEY_LEN]);

void fleet_page_key_write(uint8_t key[static FLEET_PAGE_KEY_LEN], const struct fleet_keys *keys,
			  struct fleet_place host, const struct list_position *at);
/* Returns false for nearly every key that no host of the fleet has made. */
bool fleet_page_key_read(struct fleet_place *host, struct list_position *at, enum list_kind kind,
			 const struct fleet_keys *keys,
			 const uint8_t key[static FLEET_PAGE_KEY_LEN]);

/* A position among the events of a host: after the event with the number `n`, or if `n` is 0, after
 * the time `at_ms`. In a key for all hosts, which hides the host as above, both belong to one
 * event. */
struct event_position {
	int64_t at_ms;
	uint64_t n;
};
#define EVENT_MS_MAX	    (INT64_MAX - 2) /* the last time of an event; positions lie around it */
#define EVENT_KEY_LEN	    16
#define FLEET_EVENT_KEY_LEN (FLEET_ID_BYTES + EVENT_KEY_LEN)
#define EVENT_LETTER	    'v'
#define EVENT_FLEET_LETTER  'V'

void event_key_write(uint8_t key[static EVENT_KEY_LEN], const struct event_position *at);
/* Returns false for a time that no event has. */
bool event_key_read(struct event_position *at, const uint8_t key[static EVENT_KEY_LEN]);
void fleet_event_key_write(uint8_t key[static FLEET_EVENT_KEY_LEN], const struct fleet_keys *keys,
			   struct fleet_place host, const struct event_position *at);
bool fleet_event_key_read(struct fleet_place *host, struct event_position *at,
			  const struct fleet_keys *keys,
			  const uint8_t key[static FLEET_EVENT_KEY_LEN]);

#endif
