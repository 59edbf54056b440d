// SPDX-License-Identifier: Apache-2.0
/*
 * On which host a new sandbox is made. Each host decides for the creates that reach it, from what
 * it has heard of the others; nobody is in charge. All here is computation: the caller gives the
 * time (monotonic, in ms) and random numbers, and sends what place_next says. Nothing allocates
 * memory.
 *
 * A create takes at most PLACE_TURNS turns. In each but the last it looks for a warm sandbox: on
 * this host, or on the better of two others, first among the homes of its tenant; a host that it is
 * sent to says at once if it has none. The last turn takes any host with room.
 * docs/internals/fleet-placement.md has the reasons and figures.
 */
#ifndef RAMET_ORCHESTRATOR_FLEET_PLACE_H
#define RAMET_ORCHESTRATOR_FLEET_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#define PLACE_TURNS	  7
#define PLACE_HOME_TURNS  2    /* the first turns: they draw from the tenant's homes */
#define PLACE_SENDS	  3    /* hosts that a create is sent to at most */
#define PLACE_PICKS	  2    /* hosts that are compared in a turn, besides this one */
#define PLACE_KINDS	  8    /* templates and sizes whose warm sandboxes are counted */
#define PLACE_FULL	  1000 /* `used` of a host without any room */
#define PLACE_CREATE_FULL 850  /* from here on there is room for forks only */
#define PLACE_SLACK	  50   /* this host is preferred up to this much above the mean */
#define PLACE_FRESH_MS	  5000 /* an older load is asked for again */
#define PLACE_SILENT_MS	  5000 /* how long a host that did not answer is left alone */
#define PLACE_FAILURES	  3    /* creates in a row, after which a host takes itself out */
#define PLACE_RETRY_MS	  30000
#define PLACE_RETRY_MAX	  600000

/* --- what a host says of itself ------------------------------------------------------------- */

struct place_load {
	uint16_t used;		      /* of its room, in thousandths */
	bool closed;		      /* draining, or its creates failed */
	uint8_t warm[PLACE_KINDS];    /* warm sandboxes that nobody has taken yet */
	uint32_t sandboxes, free_mib; /* shown to operators only */
};

/* The resources of a host, each used and in total. */
struct place_room {
	uint64_t memory_used, memory; /* MiB */
	uint64_t vms_used, vms;
	uint64_t disk_used, disk; /* MiB; of a disk, 15 % stay free */
};

/* Returns how much of the scarcest resource is used, 0 to PLACE_FULL. */
uint16_t place_used(const struct place_room *room);

/* Whether a host works. PLACE_FAILURES creates that fail in a row close the host. After a wait, one
 * create is let through; each further failure doubles the wait. All fields 0: the host works. */
struct place_health {
	uint32_t failed;
	uint32_t wait_ms;
	uint64_t open_ms; /* if the host is closed: until when */
};

/* To be called with the result of every create, and of every warm sandbox that the pool makes. The
 * pool's show that a host works again, without a user's create. */
void place_result(struct place_health *health, bool ok, uint64_t now_ms);
bool place_closed(const struct place_health *health, uint64_t now_ms);

enum place_verdict {
	PLACE_OK,
	PLACE_NO_WARM, /* `warm_only`, and there is no warm sandbox of this kind */
	PLACE_NO_SLOT, /* the tenant's limit (slots.h) */
	PLACE_NO_ROOM,
	PLACE_IS_CLOSED,
	PLACE_UNREACHABLE, /* the host did not answer; for place_refused only */
};

/* Decides whether this host, whose load is `load`, makes the sandbox. */
enum place_verdict place_admit(const struct place_load *load, uint32_t kind, bool warm_only);

/* --- which host ----------------------------------------------------------------------------- */

struct place_peer {
	uint32_t number;
	bool ready; /* the table says so: right region, not draining, not gone */
	struct place_load load;
	uint64_t heard_ms;  /* 0: never */
	uint64_t silent_ms; /* until when the host is not asked */
};

struct place {
	struct place_peer *peers; /* the caller's, in the order of the table */
	uint32_t n, self;	  /* self: index of this host, whose load is up to date */
	uint32_t mean; /* of the loads heard lately, in 256ths of a thousandth; 0: unknown */
};

/* Returns the number of homes of a tenant with this limit: one for each 16 sandboxes, at least 3,
 * but at most `n`. */
uint32_t place_homes_wanted(uint32_t cap, uint32_t n);
/*
 * Fills `homes` with the indices of the tenant's `want` homes: the hosts with the highest hash of
 * tenant and number, best first. All hosts find the same homes, and a host that joins or leaves
 * changes few of them. To be called again when the table changes; it costs one hash for each peer.
 * `want` must be at most p->n.
 */
void place_homes(const struct place *p, uint64_t tenant, uint16_t *homes, uint32_t want);

/* One create under way. The caller zeroes it and fills in the first part. */
struct place_create {
	const uint16_t *homes; /* the caller's */
	uint32_t n_homes;
	bool only_homes; /* only the homes and this host may make the sandbox */
	bool not_here;	 /* this host must not make it, or has refused */
	uint32_t kind;	 /* below PLACE_KINDS */

	uint32_t turn;
	bool drawn, asked;
	bool found;	   /* `fallback` is the first host with room but no warm sandbox */
	uint16_t fallback; /* the host to try in the last turn */
	uint32_t n_tried;
	uint16_t picks[PLACE_PICKS], tried[PLACE_SENDS];
};

enum place_step {
	PLACE_HERE,    /* make it on this host */
	PLACE_ASK,     /* ask `hosts` for their loads (UINT16_MAX: none), then call again */
	PLACE_SEND,    /* send it to hosts[0] */
	PLACE_REFUSED, /* no host that was looked at can make it */
};

struct place_next {
	enum place_step step;
	bool warm_only; /* a host without a warm sandbox must refuse; false for the last try */
	uint16_t hosts[PLACE_PICKS];
};

/* `random`: 64 random bits for each call. After PLACE_HERE or PLACE_SEND, the caller either ends,
 * or calls place_refused and then this function again. */
struct place_next place_next(struct place *p, struct place_create *c, uint64_t random,
			     uint64_t now_ms);
/* Notes that `host`, of the last step, has refused: the turn is over. A host without a slot in hand
 * should ask for one (slots.h) and wait for it before it refuses with PLACE_NO_SLOT. */
void place_refused(struct place *p, struct place_create *c, uint16_t host, enum place_verdict why,
		   uint64_t now_ms);

/* Notes the load of a host, which the answer to any request has. */
void place_heard(struct place *p, uint16_t host, const struct place_load *load, uint64_t now_ms);
/* Notes that a host did not answer. */
void place_silent(struct place *p, uint16_t host, uint64_t now_ms);

#endif
