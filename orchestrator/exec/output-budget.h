// SPDX-License-Identifier: Apache-2.0
/*
 * Accounting of the output that the service holds: events for replay and unfinished lines, on its
 * heap and in the journals. There is one budget, and an account for each tenant. Above the budget,
 * output of the tenant that holds most is dropped, so that a tenant within an equal share never
 * loses any.
 */
#ifndef RAMET_ORCHESTRATOR_EXEC_OUTPUT_BUDGET_H
#define RAMET_ORCHESTRATOR_EXEC_OUTPUT_BUDGET_H

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
	void *owner; /* the tenant; NULL once that is gone */
};

/* Sets the budget to `most` bytes; 0: the default for this host. */
void output_budget_init(struct output_budget *b, size_t most);
/* Returns a new account. output_account_put frees it once nothing is counted in it any more. */
struct output_account *output_account_new(struct output_budget *b, void *owner);
void output_account_put(struct output_account *a);

/* Counts a change from `before` to `now` held bytes. Does nothing for NULL. */
void output_count(struct output_account *a, size_t before, size_t now);

/* Returns whether output must be dropped. A part of the budget is reserved for rewriting
 * journals. */
bool output_is_over(const struct output_budget *b);
/* Returns whether output must be dropped and the account exceeds an equal share. */
bool output_is_tight(const struct output_account *a);
/* Returns the account that holds most, or NULL if there are no accounts. */
struct output_account *output_heaviest(const struct output_budget *b);

#endif
