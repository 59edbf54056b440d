// SPDX-License-Identifier: Apache-2.0
/*
 * How much output of sandboxes the service holds: events for replay and lines whose end has not
 * come, on its heap and in the diaries. There is one budget, and an account for each tenant. Above
 * the budget the tenant that holds most gives way, so that one within an equal share never does.
 */
#ifndef RAMET_ORCHESTRATOR_JOURNAL_OUTPUT_BUDGET_H
#define RAMET_ORCHESTRATOR_JOURNAL_OUTPUT_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"

struct output_budget {
	size_t most, held;
	struct list accounts;
	unsigned n_accounts;
};

struct output_account {
	struct list link;
	struct output_budget *budget;
	size_t held;
	void *owner; /* the tenant whose it is; NULL when that is gone */
};

/* `most` bytes; 0: the default for this host. */
void output_budget_init(struct output_budget *b, size_t most);
/* Returns a new account, to be put back. It then stays while anything is counted in it. */
struct output_account *output_account_new(struct output_budget *b, void *owner);
void output_account_put(struct output_account *a);

/* Counts `now` bytes where `before` were held. NULL: they count nowhere. */
void output_count(struct output_account *a, size_t before, size_t now);

/* True when something has to give way. A part of the budget is kept for writing diaries anew. */
bool output_is_over(const struct output_budget *b);
/* True when something has to give way and the account is beyond its equal share. */
bool output_is_tight(const struct output_account *a);
/* Returns the account that holds most; NULL when there is none. */
struct output_account *output_heaviest(const struct output_budget *b);

#endif
