// SPDX-License-Identifier: Apache-2.0
/*
 * Limits the number of a tenant's sandboxes in the whole fleet, without a question to other hosts
 * at each create. A tenant's limit is divided into allowances: each host holds some slots of it,
 * and a create takes one of these from memory. The tenant's keeper, a host too (books.h), records
 * the allowances; their sum is at most the limit. A host asks for more slots before it has none
 * left, and returns those that it did not need for a while. Other limits of a tenant, such as the
 * size of all disks, are divided in the same way: a slot then is a unit of that limit. Slots of
 * Spaces and checkpoints, like these, outlive sandboxes.
 *
 * All here is computation: the caller gives the time (in ms, of a clock that nobody sets), and
 * carries writes between slots_due, slots_grant (where the records are) and slots_written.
 */
#ifndef RAMET_ORCHESTRATOR_FLEET_SLOTS_H
#define RAMET_ORCHESTRATOR_FLEET_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#define SLOTS_BLOCK_MAX	    16
#define SLOTS_IDLE_MS	    300000 /* how long unused slots above the share are kept */
#define SLOTS_IDLE_TIGHT_MS 5000   /* the same while less than one slot for each home is left */
#define SLOTS_KEEP_MS	    600000 /* how long the share is kept without a sandbox */
#define SLOTS_REFUSED_MS    1000   /* until the next question when nothing was left */
#define SLOTS_YIELD_HOSTS   4	   /* hosts that are asked to yield when nothing is left */

/* The slots of one tenant on this host. If the host holds none, all is zero but `cap`, `homes`,
 * `share`, and `left`, which is `cap`. */
struct slots {
	uint32_t cap;	/* the tenant's limit in the whole fleet */
	uint32_t homes; /* number of the tenant's homes, at least 1 */
	uint32_t share; /* slots_share() on its homes, else 0 */
	uint32_t used;	/* slots that sandboxes here use, including those being made */
	uint32_t held;	/* what this host may use; never more than its record */
	uint32_t left;	/* slots free for any host, when the keeper last said so */
	uint32_t want;	/* the value that the write under way gives the record */
	bool busy;	/* a write is under way */
	uint32_t low;	/* least number of free slots since low_ms */
	uint64_t low_ms;
	uint64_t used_ms;    /* when there last was a sandbox here */
	uint64_t refused_ms; /* before this time, asking for more slots is useless */
};

/* Returns how many slots above its allowance each home may use while the keeper is away: a fifth of
 * the limit for all homes together, rounded up on each. A tenant's sandboxes can pass its limit by
 * `homes` times that, and by nothing else. */
uint32_t slots_overdraft(uint32_t cap, uint32_t homes);

/* Returns how many slots a home keeps while the tenant is active: all homes together keep nine
 * tenths of the limit, and the rest goes where it is needed. */
uint32_t slots_share(uint32_t cap, uint32_t homes);
/* Returns how many slots can be taken without asking for more. */
uint32_t slots_free(const struct slots *s);
/* Returns how many slots this host may use: those that it holds and, on a home, the overdraft while
 * the keeper is `away`. */
uint32_t slots_allowed(const struct slots *s, bool away);
/* Sets how many slots are used. */
void slots_use(struct slots *s, uint32_t used);

/*
 * Returns whether this host's record has to be written, with its new value in *want; the caller
 * carries that to slots_grant and answers with slots_written or slots_lost. To be called after
 * slots_use, and each few seconds. `waiting`: slots for which somebody waits.
 */
bool slots_due(struct slots *s, uint32_t waiting, uint64_t now_ms, uint32_t *want);
/* Does the same for a record that would lapse if it were not written again. */
bool slots_renew(struct slots *s, uint32_t *want);
/* Notes that the record now has the value `record`, and that `left` slots are free for any host. */
void slots_written(struct slots *s, uint32_t record, uint32_t left, uint64_t now_ms);
/* Notes that the write may have taken place or not. The next slots_due writes the same value
 * again. */
void slots_lost(struct slots *s);
/* Notes that the lease ended, and this host's record with it: others may have the slots. Sandboxes
 * that are here go on, but none is added until records are granted again. */
void slots_lapsed(struct slots *s);

/*
 * When nothing is left for a waiting create or fork, up to SLOTS_YIELD_HOSTS hosts that have slots
 * to spare are asked to yield: each gives up half of these slots, or more if more are `needed`.
 * Returns how many slots this host has given up; its record may be lowered by as many.
 */
uint32_t slots_yield(struct slots *s, uint32_t needed);

/*
 * Returns the value to write in the record of a host that has `record` and wants `want`, where all
 * other hosts' records are `others` in sum. Lowering is always granted.
 */
uint32_t slots_grant(uint32_t cap, uint32_t others, uint32_t record, uint32_t want);

#endif
