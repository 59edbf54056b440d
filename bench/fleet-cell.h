// SPDX-License-Identifier: Apache-2.0
/* One simulated cell of a fleet, driven by the service's own code for placement and limits. */
#ifndef RAMET_BENCH_FLEET_CELL_H
#define RAMET_BENCH_FLEET_CELL_H

#include <stdbool.h>
#include <stdint.h>

enum policy {
	POLICY_LANDS,  /* on the host that it reached */
	POLICY_BETTER, /* on the better of two others, if this host has no warm sandbox */
	POLICY_PLACE,  /* orchestrator/fleet/place.c */
};

struct cell_options {
	uint32_t hosts, tenants;
	double hours;
	enum policy policy;
	bool limits; /* of tenants */
	bool faults; /* deaths, a rack, the database away, an upgrade */
	uint64_t seed;
};

struct cell_figures {
	uint64_t creates, served, hops, asks;
	uint64_t cold, burst_served, burst_cold; /* without a warm sandbox */
	uint64_t tenant_served, tenant_cold;	 /* the same in bursts of one tenant */
	uint64_t refused_room;			 /* though some host had room */
	uint64_t refused_full;			 /* and no host had room */
	uint64_t refused_near; /* for want of a slot, between nine tenths of the limit and the limit
				*/
	uint64_t refused_below; /* for want of a slot, below nine tenths of the limit */
	uint64_t refused_away;	/* the same while the keeper was away or not sure */
	uint64_t refused_limit; /* the tenant was at its limit */
	uint64_t forks, forks_no_room, forks_no_slot, forks_away; /* as refused_below, _away */
	uint64_t writes, waits; /* messages to keepers; those that a create waited for */
	uint64_t yields;	/* questions to yield a slot */
	uint64_t above_limit;	/* takes above the limit that no overdraft explains */
	uint64_t wrong;		/* other broken invariants */
	uint64_t lost;		/* sandboxes on hosts that died */
	uint64_t overdrawn;	/* takes above the limit, within the overdraft */
	uint32_t most_over;	/* above a limit, in thousandths of it */
	double seconds;
	uint32_t n_spread;
	float *spread; /* max / mean occupancy, each minute; the caller frees it */
	double mean_used;
};

/* Ends the program if memory runs out. */
void cell_run(const struct cell_options *o, struct cell_figures *f);

#endif
