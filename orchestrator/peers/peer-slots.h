// SPDX-License-Identifier: Apache-2.0
/* Private declarations on allowances: peer-slots.c has this host's own, peer-books.c the records of
 * the tenants whose keeper this host is. */
#ifndef RAMET_ORCHESTRATOR_PEERS_PEER_SLOTS_H
#define RAMET_ORCHESTRATOR_PEERS_PEER_SLOTS_H

#include "orchestrator/fleet/books.h"
#include "orchestrator/fleet/exchange.h"
#include "orchestrator/fleet/table.h"
#include "orchestrator/peers/internal.h"
#include "orchestrator/sandbox/tenant.h"

_Static_assert((int)EXCHANGE_LIMITS == (int)TENANT_LIMITS, "hosts speak of all limits");

/* Paths, for other hosts only. */
#define PEERS_SLOTS	   "/fleet/slots"
#define PEERS_SLOTS_YIELD  "/fleet/slots/yield"
#define PEERS_SLOTS_REPORT "/fleet/slots/report"
/* Last line of a report's last part. */
#define PEER_SLOTS_END "end\n"

#define SLOTS_ASK_MS 1000 /* time limit for a host to report or yield */

#define BOOK_BUCKETS 1024

/* The allowances of a tenant on this host. */
struct allowance {
	struct list link;
	struct peer_slots *slots;
	struct tenant *tenant;
	struct slots limits[TENANT_LIMITS];
	bool away; /* the keeper did not answer, or is not sure: the overdraft may be used */
	uint64_t sent_ms, until_ms; /* when the keeper's last lease began, and when it ends */
	struct list waiters;	    /* struct tenant_wait, of operations that lack slots */
	bool busy;		    /* the keeper is asked, by one of these: */
	struct peer_call call;
	struct op *settling; /* if this host is the keeper */
};

struct peer_slots {
	struct peers *peers;
	struct service *service;
	struct loop *loop;
	struct place cell; /* all hosts of the cell that are not gone */
	unsigned version;  /* of that table */
	uint64_t keepers;  /* books_keepers */
	uint64_t at;	   /* number of the last message */
	struct list allowances;
	uint32_t idle_asks; /* questions left until the next tick, for tenants without sandboxes */
	struct loop_timer tick;

	struct books_trust trust;
	struct list books; /* struct tenant_books */
	struct list book_buckets[BOOK_BUCKETS];
	struct list polls; /* questions for reports under way */
};

/* --- peer-slots.c --------------------------------------------------------------------------- */

struct peer_slots *peer_slots_new(struct peers *p, struct service *service);
void peer_slots_free(struct peer_slots *s);
/* Returns the tenant's keeper in the table. */
const struct fleet_host *peer_slots_keeper(const struct peer_slots *s, const char *tenant);
/* Yields unused slots of the tenant, then fills `x` with what this host says of its allowance. */
void peer_slots_yield(struct peer_slots *s, const struct exchange *asked, struct exchange *x);
/* Copies the line of an answer, which is empty if there was a failure. */
void peer_slots_line(char out[static EXCHANGE_LINE_MAX + 1], const struct peer_call *call,
		     const struct failure *f);
/* Adds a request with this line as its body. */
void peer_slots_ask(struct text *out, const char *path, const char *line);
/* Takes over the keeper's answer; NULL: there is none. */
void peer_slots_answered(struct allowance *a, const struct exchange_granted *g);

/* --- peer-books.c --------------------------------------------------------------------------- */

/* To be called about once a second. */
void peer_books_tick(struct peer_slots *s);
/* To be called when the table has changed. */
void peer_books_refresh(struct peer_slots *s);
/* Serves a write of this host itself, and calls peer_slots_answered later. */
void peer_books_settle(struct peer_slots *s, const struct exchange *x, struct allowance *a);
/* Serves a write of another host. */
void peer_books_serve(struct peer_slots *s, const struct exchange *x, struct request *r);
/* Notes that the host has agreed on the keepers. */
void peer_books_agreed(struct peer_slots *s, uint32_t host);
void peer_books_free(struct peer_slots *s);

#endif
