// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/exec/output-budget.h"

#include <stdlib.h>
#include <sys/sysinfo.h>

#include "base/alloc.h"
#include "base/elements.h"

#define LEAST_DEFAULT (64u << 20)

/* Returns 1/128 of the host's memory, at least LEAST_DEFAULT. That is half of what the warden
 * reserves from the VMs by default (memory_mib). */
static size_t default_most(void)
{
	struct sysinfo info;
	size_t most = sysinfo(&info) < 0 ? 0 : (size_t)info.totalram * info.mem_unit / 128;

	return most > LEAST_DEFAULT ? most : LEAST_DEFAULT;
}

void output_budget_init(struct output_budget *b, size_t most)
{
	*b = (struct output_budget){.most = most ? most : default_most()};
}

struct output_account *output_account_new(struct output_budget *b, void *owner)
{
	struct output_account *a = must_alloc(sizeof(*a));

	a->budget = b;
	a->owner = owner;
	list_add_tail(&b->accounts, &a->link);
	b->n_accounts++;
	return a;
}

static void free_unused(struct output_account *a)
{
	if (a->owner || a->held)
		return;
	a->budget->n_accounts--;
	list_del(&a->link);
	free(a);
}

void output_account_put(struct output_account *a)
{
	if (!a)
		return;
	a->owner = NULL;
	free_unused(a);
}

void output_count(struct output_account *a, size_t before, size_t now)
{
	if (!a || before == now)
		return;
	a->held += now - before;
	a->budget->held += now - before;
	free_unused(a);
}

bool output_is_over(const struct output_budget *b)
{
	return b->held > b->most - b->most / 16;
}

bool output_is_tight(const struct output_account *a)
{
	return a && output_is_over(a->budget) && a->held > a->budget->most / a->budget->n_accounts;
}

struct output_account *output_heaviest(const struct output_budget *b)
{
	struct output_account *most = NULL;

	list_each_of (a, struct output_account, link, &b->accounts)
		if (!most || a->held > most->held)
			most = a;
	return most;
}
