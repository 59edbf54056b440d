// SPDX-License-Identifier: Apache-2.0
/*
 * Trees: a root sandbox, its descendants, and the Spaces made of them. A sandbox belongs to the
 * tree of the sandbox that it was forked from, and a Space to that of the sandbox that was frozen,
 * whatever has ended since. A tree may have a budget, which all its sandboxes share.
 */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_TREE_H
#define RAMET_ORCHESTRATOR_SANDBOX_TREE_H

#include "orchestrator/io/deferred.h"
#include "orchestrator/sandbox/roster.h"
#include "orchestrator/sandbox/sandboxes.h"
#include "orchestrator/store/store.h"

struct sandbox;
struct tenant;

/* Reference-counted: by its sandboxes until they have ended, its Spaces, and claims. */
struct tree {
	struct list bucket; /* keyed by root */
	struct service *service;
	struct tenant *owner;
	unsigned users;
	char root[SANDBOX_ID_LEN + 1];
	bool limited; /* has a budget, and a row in the catalogue */
	struct tree_budget budget;
	/* When the root was created; without a budget, the oldest known sandbox. */
	int64_t created_at_ms;
	uint64_t began_ms;    /* the same, by the boot-time clock; may have wrapped around */
	struct roster nodes;  /* living sandboxes */
	uint64_t ram_mib;     /* of living sandboxes */
	uint64_t vcpus;	      /* of living sandboxes */
	size_t coming;	      /* sandboxes that were granted to claims and are not listed yet */
	uint64_t coming_mib;  /* RAM of these */
	uint64_t spent_ms;    /* CPU time of VMs that have ended */
	unsigned deletes;     /* how often all sandboxes were deleted at once */
	struct list claims;   /* waiting ones, in order */
	struct list starts;   /* claims that have `ancestors`, until their sandboxes are listed */
	struct deferred pump; /* grants claims */
	struct loop_timer check;
};

/* Returns NULL when there is none. Takes no reference. */
struct tree *tree_find(const struct service *c, const char *tenant, const char *root);
/* Returns the tree's sandbox number `i`. */
struct sandbox *tree_node(const struct tree *t, size_t i);
/* Returns the CPU time of all sandboxes, living and ended, and notes that of the living ones. */
uint64_t tree_cpu_ms(const struct tree *t);
/* Returns the time since the root sandbox was created. */
uint64_t tree_wall_ms(const struct tree *t);

/* Returns the tree, with a reference for the caller. Makes it, without a budget, if it is not
 * known. */
struct tree *tree_get(struct service *c, struct tenant *owner, const char *root);
struct tree *tree_hold(struct tree *t);
/* Accepts NULL. A budget is forgotten with the last reference. */
void tree_put(struct tree *t);
/* Gives a new tree the budget of its catalogue row, which the caller has added or read. */
void tree_limit(struct tree *t, const struct store_tree *row);
/* Sets or changes the budget, which the caller has recorded in the catalogue. Sandboxes that exceed
 * the new budget stay; waiting forks are checked again. */
void tree_set_budget(struct tree *t, const struct tree_budget *budget);
/* Returns whether the tree can have the budget, else false with *f filled. `root`: the size of its
 * root; NULL: it exists already. */
bool tree_budget_fits(const struct service *c, const char *tenant, const struct tree_budget *budget,
		      const struct size *root, struct failure *f);
/* Gives known trees their budgets when the service starts, after sandboxes and Spaces were loaded.
 */
int trees_load(struct service *c, struct err *e);

/* Count a sandbox that is added to the service's list, or removed from it. For registry.c. */
void tree_join(struct sandbox *s);
void tree_leave(struct sandbox *s);
/* Adds the CPU time of the sandbox's VM, which is about to be dropped, to the tree's spent_ms. */
void tree_vm_ends(struct sandbox *s);
/* Ends all sandboxes if a time limit is used up; else sets the timer for the next check. */
void tree_check(struct tree *t);

/* --- room for new sandboxes ------------------------------------------------------------------- */

struct tree_claimant {
	/* Called once with the result: `f` is NULL if the claim has got its room; else the claim is
	 * refused, and over. */
	void (*granted)(void *arg, const struct failure *f);
	/* Freezes a sandbox, then calls tree_claim_again. */
	void (*freeze)(void *arg, const char *id);
};

/* A request for `n` sandboxes of `mib` each. Embedded in an operation, which fills in the members
 * before `link`. */
struct tree_claim {
	struct tree *tree;
	struct sandbox *node; /* the sandbox that is being forked; NULL: none */
	uint32_t depth;	      /* of the new sandboxes */
	unsigned n;
	uint64_t mib;
	/* The ancestors of the new sandboxes if these start from a checkpoint: as in lineage.h,
	 * valid while the claim is held. NULL: they end with `node`, or have none. */
	const char *ancestors;
	const struct tree_claimant *claimant; /* NULL: never waits */
	void *arg;
	struct list link;   /* on tree->claims while it waits */
	struct list starts; /* on tree->starts */
	bool held, granted;
	bool deleted;	  /* an ancestor was deleted with all its descendants */
	unsigned deletes; /* of the tree, when the claim was made */
	bool freezing;	  /* waits for the claimant's freeze */
};
/* Returns false, with *f filled, if the claim is refused. Else it is granted at once, or it waits
 * and claimant->granted is called later, never from inside this call. */
bool tree_claim(struct tree_claim *claim, struct failure *f);
/* Returns false, with *f filled, if the tree or this part of it was deleted since the claim was
 * made: its sandboxes must not come into being. */
bool tree_claim_stands(const struct tree_claim *claim, struct failure *f);
/* Notes that a freeze for the claim is over. */
void tree_claim_again(struct tree_claim *claim);
/* Gives back what was granted, or stops waiting. Does nothing for a claim that was never made. */
void tree_claim_drop(struct tree_claim *claim);

#endif
