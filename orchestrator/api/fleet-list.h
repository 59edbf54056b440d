// SPDX-License-Identifier: Apache-2.0
/* What all lists over the hosts of a fleet have: a bound on how many there are at a time, and the
 * hosts that are left out. */
#ifndef RAMET_ORCHESTRATOR_API_FLEET_LIST_H
#define RAMET_ORCHESTRATOR_API_FLEET_LIST_H

#include "orchestrator/api/internal.h"
#include "orchestrator/fleet/table.h"
#include "orchestrator/peers/peers.h"

#define BAD_FLEET_CURSOR                                                                           \
	"cursor is not one of this cell of the fleet: use a value of the header ramet-next-cursor"

struct fleet_list {
	struct list link; /* in api->lists */
	struct request *r;
	struct text missing; /* uint32_t: the hosts that are left out */
};

/* Begins a list. Returns false, with an answer given, if there are too many lists at a time: other
 * hosts could not answer all of them within the time limit. */
bool fleet_list_begin(struct fleet_list *l, struct request *r);
void fleet_list_end(struct fleet_list *l);

/* Notes that the host is left out. */
void fleet_list_miss(struct fleet_list *l, uint32_t number);
bool fleet_list_misses(const struct fleet_list *l, uint32_t number);
/* Adds the names of the hosts that are left out to the answer's head. */
void fleet_list_answer(struct fleet_list *l);

/* Returns the first host from `number` on whose sandboxes do not count as lost. NULL: none. */
const struct fleet_host *fleet_list_host(const struct fleet_table *t, uint32_t number);

/* --- rounds: all other hosts are asked, some at a time --------------------------------------- */

struct fleet_round {
	/* Asks the host with peers_ask, whose `fn` calls fleet_round_go_on. Returns false if it
	 * can't be asked. */
	bool (*ask)(struct request *r, const struct fleet_host *host);
	/* Takes the host's answer. Returns false if it is of no use. */
	bool (*take)(struct request *r, uint32_t number, const struct peers_part *part);
	/* All hosts that could be asked have answered, or are left out. */
	void (*over)(struct request *r);
	uint64_t limit_ms; /* time after which no more hosts are asked */
	/* Private: */
	uint64_t began_ms;
	uint32_t next; /* hosts from this number on are to be asked */
	struct {
		bool used;
		uint32_t number;
	} asked[PEERS_PARTS];
};

/* Begins a round. Hosts that were left out are not asked again. */
void fleet_round_begin(struct fleet_list *l, struct fleet_round *round);
void fleet_round_go_on(struct fleet_list *l, struct fleet_round *round);

/* --- pages.c: this host's part of such a list ------------------------------------------------- */

/* Adds a part of this host's list to `out`: some KiB of the page, and then calls `gathered`. */
void pages_part(struct request *r, void (*gathered)(struct request *r));
/* Returns whether entries follow the part, and sets *at to its end. */
bool pages_part_end(const struct request *r, struct list_position *at);

/* --- fleet-pages.c: lists of sandboxes, Spaces and checkpoints -------------------------------- */

/* Answers with a page of at most `limit` entries; SIZE_MAX: the whole list. */
void fleet_pages_serve(struct request *r, size_t limit);
/* Called when the client has taken a chunk. */
void fleet_pages_taken(struct request *r);
void fleet_pages_free(struct request *r);

#endif
