// SPDX-License-Identifier: Apache-2.0
/*
 * The records of allowances (slots.h), as a keeper has them. The keepers are the hosts with the
 * lowest numbers that are not gone, and each tenant has one of them: the first of its homes among
 * the keepers. Records are in memory only: a keeper that starts, or becomes the keeper of more
 * tenants, asks all hosts for their allowances before it grants any.
 *
 * All here is computation. Times are in ms, of a clock that runs while the host sleeps.
 */
#ifndef RAMET_ORCHESTRATOR_FLEET_BOOKS_H
#define RAMET_ORCHESTRATOR_FLEET_BOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/fleet/place.h"
#include "orchestrator/fleet/slots.h"

#define BOOKS_KEEPERS  8
#define BOOKS_LEASE_MS 90000 /* a record that its host does not renew lapses after this time */
#define BOOKS_AGREE_MS 20000 /* how long a host's agreement on the keepers counts */

/* --- the records of one tenant, for one of its limits ---------------------------------------- */

struct books_record {
	uint32_t host;
	uint32_t record, used; /* `used`: as the host last reported */
	uint64_t at;	       /* number of the message; each host numbers its own, upwards */
	uint64_t until_ms;
};

/* Initialized with zeros. The caller frees `records` with free(3). */
struct books {
	struct books_record *records; /* by host */
	size_t n, room;
	uint64_t total;	     /* of all records */
	uint64_t soonest_ms; /* earliest time at which a record can lapse */
};

/* A message in which a host says how large its allowance is. */
struct books_said {
	uint32_t host;
	uint64_t at;
	uint32_t held, used, want;
};

/* Records what the host says in answer to a question of the keeper, even above the limit. Ignores a
 * message that is older than the last one. */
void books_note(struct books *b, const struct books_said *said, uint64_t now_ms);
/* Grants what the host wants, as far as the limit allows, and returns how much it holds now. A
 * keeper that is not `sure` of its records grants nothing new. What the host uses beyond that is
 * recorded, too, so that others do not get it. */
uint32_t books_grant(struct books *b, uint32_t cap, bool sure, const struct books_said *said,
		     uint64_t now_ms);
/* Returns how many slots are left for anybody. */
uint32_t books_left(struct books *b, uint32_t cap, uint64_t now_ms);
/* Finds the hosts but `host` that have most to spare. Returns how many there are. */
size_t books_spare(struct books *b, uint32_t host, uint64_t now_ms,
		   uint32_t hosts[static SLOTS_YIELD_HOSTS]);
/* Forgets records that have lapsed. */
void books_tidy(struct books *b, uint64_t now_ms);

/* --- who is a keeper, and sure --------------------------------------------------------------- */

/* Returns a hash of the keepers among these hosts, which are sorted by their numbers. Two hosts
 * with the same hash agree on who the keepers are. */
uint64_t books_keepers(const struct place *hosts);
/* Returns the index of the tenant's keeper. */
uint16_t books_keeper(const struct place *hosts, uint64_t tenant);

/* A host, in the eyes of a keeper. */
struct books_peer {
	uint32_t number;
	bool reported;	    /* the host has reported all its allowances since begun_ms */
	uint64_t agreed_ms; /* when the host last agreed on the keepers; 0: never */
	uint64_t asked_ms;  /* when it was last asked to report; the caller's */
};

struct books_trust {
	struct books_peer *peers; /* the caller's, in the order of the hosts */
	uint32_t n, self;
	uint64_t begun_ms;   /* since when all must have reported */
	uint64_t changed_ms; /* when the keepers last changed; 0: not since the start */
};

/* Returns whether most keepers agreed lately: else this host may have been replaced. */
bool books_agreed(const struct books_trust *t, uint64_t now_ms);
/* Returns whether records may grow: no other host grants, and this host knows all allowances. */
bool books_sure(const struct books_trust *t, uint64_t now_ms);
/* Starts anew: all hosts must report. `changed`: the keepers have changed. */
void books_begin(struct books_trust *t, bool changed, uint64_t now_ms);

#endif
