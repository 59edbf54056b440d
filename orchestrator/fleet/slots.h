// SPDX-License-Identifier: Apache-2.0
/*
 * How many sandboxes a tenant runs in the whole fleet, without a question for each. A tenant's
 * limit is divided into allowances: a host holds some slots of it, recorded by the tenant's keeper,
 * another host (books.h), and a create takes one from memory. A host asks for more before it has
 * none, and returns what it did not need for a while. The sum of all records is at most the limit.
 * Other limits of a tenant, as on the size of disks, are divided in the same way: a slot is then
 * one of its units.
 *
 * All here is computation: the caller gives the time (in ms, of a clock that nobody sets), and
 * carries writes between slots_due, slots_grant (where the records are) and slots_written.
 */
#ifndef RAMET_ORCHESTRATOR_FLEET_SLOTS_H
#define RAMET_ORCHESTRATOR_FLEET_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#define SLOTS_BLOCK_MAX	    16
#define SLOTS_IDLE_MS	    300000 /* after which unused slots above the share are returned */
#define SLOTS_IDLE_TIGHT_MS 5000   /* the same while less than one for each home is left */
#define SLOTS_KEEP_MS	    600000 /* for which the share is kept without a sandbox */
#define SLOTS_REFUSED_MS    1000   /* until the next question when nothing was left */
#define SLOTS_YIELD_HOSTS   4	   /* hosts that are asked to yield when nothing is left */

/* The slots of one tenant on this host. A host that holds none has zero but for cap, homes, share,
 * and left = cap. */
struct slots {
	uint32_t cap;	/* the tenant's limit in the whole fleet */
	uint32_t homes; /* number of the tenant's homes, at least 1 */
	uint32_t share; /* slots_share() on its homes, else 0 */
	uint32_t used;	/* by sandboxes here, with those under way */
	uint32_t held;	/* what this host may use; never more than its record */
	uint32_t left;	/* of the limit, for anybody, when last heard */
	uint32_t want;	/* what the write under way makes of the record */
	bool busy;	/* a write is under way */
	uint32_t low;	/* least number of free slots since low_ms */
	uint64_t low_ms;
	uint64_t used_ms;    /* when there last was a sandbox */
	uint64_t refused_ms; /* before this time, asking for more slots is useless */
};

/* Returns how many slots above its allowance each home may use while the keeper is away: a fifth of
 * the limit for all homes together, rounded up on each. A tenant's sandboxes can pass its limit by
 * `homes` times that, and by nothing else. */
uint32_t slots_overdraft(uint32_t cap, uint32_t homes);

/* Returns how many slots a home keeps while the tenant is active: all homes together keep nine
 * tenths of the limit, and the rest goes where it is needed. */
uint32_t slots_share(uint32_t cap, uint32_t homes);
/* Returns how many can be taken at once. */
uint32_t slots_free(const struct slots *s);
/* Takes one slot, or returns false. `overdraft`: slots_overdraft() on the tenant's homes while the
 * keeper is away, else 0. */
bool slots_take(struct slots *s, uint32_t overdraft);
/* The sandbox ended, or was not made. */
void slots_put(struct slots *s);
/* The same for a caller that counts what is used: so much now. */
void slots_use(struct slots *s, uint32_t used);

/*
 * Returns whether this host's record has to be written, with its new value in *want; the caller
 * carries that to slots_grant and answers with slots_written or slots_lost. To be called after
 * a take or put, and each few seconds. `waiting`: slots for which somebody waits.
 */
bool slots_due(struct slots *s, uint32_t waiting, uint64_t now_ms, uint32_t *want);
/* The same for a record that must be written again lest it lapse. */
bool slots_renew(struct slots *s, uint32_t *want);
/* The record has now the value `record`; `left` are free for anybody. */
void slots_written(struct slots *s, uint32_t record, uint32_t left, uint64_t now_ms);
/* Nobody knows if the write took place. The next slots_due writes the same value again. */
void slots_lost(struct slots *s);
/* The lease ended, and this host's record with it: others may have the slots. Sandboxes that are
 * here go on, but none is added until records are granted again. */
void slots_lapsed(struct slots *s);

/*
 * When nothing is left for a waiting create or fork, up to SLOTS_YIELD_HOSTS hosts that have slots
 * to spare are asked to yield: each returns half of them, or more if more are `needed`. Returns how
 * many, which this host does not hold any longer; its record may be lowered by as many.
 */
uint32_t slots_yield(struct slots *s, uint32_t needed);

/*
 * Returns the value to write in the record of a host that has `record` and wants `want`, where all
 * other hosts' records are `others` in sum. Lowering is always granted.
 */
uint32_t slots_grant(uint32_t cap, uint32_t others, uint32_t record, uint32_t want);

#endif
