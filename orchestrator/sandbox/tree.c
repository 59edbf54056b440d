// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/sandbox/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/sandbox/tenant.h"

#define CHECK_MIN_MS 1000 /* the shortest time between two checks of the CPU time */

/* --- the object ------------------------------------------------------------------------------ */

struct tree *tree_find(const struct service *c, const char *tenant, const char *root)
{
	list_each_of (t, struct tree, bucket, &c->tree_buckets[bucket_number(root)])
		if (!strcmp(t->root, root) && !strcmp(t->owner->name, tenant))
			return t;
	return NULL;
}

struct tree *tree_hold(struct tree *t)
{
	t->users++;
	return t;
}

static void set_created(struct tree *t, int64_t at_ms)
{
	t->created_at_ms = at_ms;
	t->began_ms = boottime_ms() - (uint64_t)(realtime_ms() - at_ms);
}

struct tree *tree_get(struct service *c, struct tenant *owner, const char *root)
{
	struct tree *t = tree_find(c, owner->name, root);

	if (t)
		return tree_hold(t);
	t = must_alloc(sizeof(*t));
	t->service = c;
	t->owner = tenant_hold(owner);
	t->users = 1;
	snprintf(t->root, sizeof(t->root), "%s", root);
	list_add_tail(&c->tree_buckets[bucket_number(root)], &t->bucket);
	return t;
}

/* Forgets the budget, unless the service ends without its sandboxes. */
static void forget(struct tree *t)
{
	struct service *c = t->service;
	struct err e;

	if (!t->limited)
		return;
	c->trees.n--;
	if (!c->vms.detached && store_tree_forget(c->store, t->root, &e) < 0)
		log_error("tree %s can't be removed from the catalogue: %s", t->root, e.text);
}

void tree_put(struct tree *t)
{
	if (!t || --t->users)
		return;
	forget(t);
	loop_timer_clear(t->service->loop, &t->check);
	deferred_cancel(&t->pump);
	list_del(&t->bucket);
	tenant_put(t->owner);
	free(t);
}

void tree_limit(struct tree *t, const struct store_tree *row)
{
	t->spent_ms += row->spent_ms;
	set_created(t, row->created_at_ms);
	tree_set_budget(t, &row->budget);
}

bool tree_budget_fits(const struct service *c, const char *tenant, const struct tree_budget *budget,
		      const struct size *root, struct failure *f)
{
	struct tier tier;

	if (root && budget->ram_mib && root->ram_mib > budget->ram_mib) {
		failure_set(f, FAIL_OUT_OF_RANGE, 0,
			    "tree.ram_mib is %llu, and the root alone has %u MiB",
			    (unsigned long long)budget->ram_mib, root->ram_mib);
		return false;
	}
	if (budget->at_limit == TREE_FREEZE_OLDEST_LEAF && tenant_tier(c, tenant, &tier) &&
	    !tier.persistent) {
		failure_set(f, FAIL_OUT_OF_RANGE, 0,
			    "tree.at_limit is freeze_oldest_leaf, which needs a key whose tier "
			    "allows persistent sandboxes: use another value");
		return false;
	}
	return true;
}

static void on_row(void *arg, const struct store_tree *row)
{
	struct tree *t = tree_find(arg, row->tenant, row->root);

	if (t)
		tree_limit(t, row);
}

int trees_load(struct service *c, struct err *e)
{
	return store_trees(c->store, on_row, c, e);
}

/* --- use ------------------------------------------------------------------------------------- */

struct sandbox *tree_node(const struct tree *t, size_t i)
{
	return container_of(t->nodes.all[i], struct sandbox, listed);
}

static uint64_t node_cpu_ms(const struct sandbox *s)
{
	uint64_t ns = vm_cpu_ns(s->pid);

	return (ns ? ns : s->use.cpu_ns) / 1000000;
}

uint64_t tree_cpu_ms(const struct tree *t)
{
	uint64_t ms = t->spent_ms;

	for (size_t i = 0; i < t->nodes.n; i++) {
		struct sandbox *s = tree_node(t, i);

		s->cpu_ms = node_cpu_ms(s);
		ms += s->cpu_ms;
	}
	return ms;
}

uint64_t tree_wall_ms(const struct tree *t)
{
	int64_t ms = (int64_t)(boottime_ms() - t->began_ms);

	return ms > 0 ? (uint64_t)ms : 0;
}

void tree_vm_ends(struct sandbox *s)
{
	struct tree *t = s->tree;
	struct err e;

	t->spent_ms += node_cpu_ms(s);
	if (t->limited && store_tree_spent(s->service->store, t->root, t->spent_ms, &e) < 0)
		log_error("the CPU time of tree %s can't be recorded: %s", t->root, e.text);
}

/* Returns the CPU time of the tree if its budget limits CPU time; else 0, since reading the CPU
 * time of each VM would be for nothing. */
static uint64_t limited_cpu_ms(const struct tree *t)
{
	return t->budget.cpu_s ? tree_cpu_ms(t) : 0;
}

/* Returns the name of a time limit that is used up, and in *limit its value; NULL: none is. */
static const char *used_up(const struct tree *t, uint64_t cpu_ms, uint32_t *limit)
{
	const struct tree_budget *b = &t->budget;

	*limit = b->wall_s;
	if (b->wall_s && tree_wall_ms(t) >= b->wall_s * 1000ull)
		return "wall_seconds";
	*limit = b->cpu_s;
	return b->cpu_s && cpu_ms >= b->cpu_s * 1000ull ? "cpu_seconds" : NULL;
}

static uint64_t left_ms(uint32_t limit_s, uint64_t used_ms)
{
	uint64_t limit_ms = limit_s * 1000ull;

	return limit_ms > used_ms ? limit_ms - used_ms : 0;
}

/* Sets the timer to when a time limit can be reached at the earliest. */
static void set_timer(struct tree *t, uint64_t cpu_ms)
{
	const struct tree_budget *b = &t->budget;
	uint64_t ms = UINT64_MAX;

	if (b->cpu_s) {
		ms = left_ms(b->cpu_s, cpu_ms) / (t->vcpus ? t->vcpus : 1);
		ms = max_u64(ms, CHECK_MIN_MS);
	}
	if (b->wall_s)
		ms = min_u64(ms, left_ms(b->wall_s, tree_wall_ms(t)));
	if (ms != UINT64_MAX)
		loop_timer_set(t->service->loop, &t->check, ms);
}

static void end_all(struct tree *t, const char *name, uint32_t limit)
{
	char text[ERR_TEXT_MAX];

	snprintf(text, sizeof(text), "tree %s has used up its budget: %s is %u", t->root, name,
		 limit);
	log_info("%s; its %zu sandboxes end", text, t->nodes.n);
	t->service->trees.ended += t->nodes.n;
	tree_hold(t);
	for (size_t i = t->nodes.n; i-- > 0;)
		sandbox_end(tree_node(t, i), "tree_limit", text, false);
	tree_put(t);
}

static void on_check(void *arg)
{
	struct tree *t = arg;
	uint64_t cpu_ms = limited_cpu_ms(t);
	uint32_t limit;
	const char *name = used_up(t, cpu_ms, &limit);

	if (name && t->nodes.n)
		end_all(t, name, limit);
	else if (!name && t->nodes.n)
		set_timer(t, cpu_ms);
}

void tree_check(struct tree *t)
{
	if (!t->budget.cpu_s && !t->budget.wall_s)
		return;
	/* The loop ends sandboxes on its next turn, since nobody listens to ends yet at the start
	 * of the service. */
	loop_timer_start(t->service->loop, &t->check, on_check, t, 0);
}

static void pump(void *arg);

static void schedule_pump(struct tree *t)
{
	if (!list_empty(&t->claims))
		deferred_run(&t->service->deferred, &t->pump, pump, t);
}

void tree_set_budget(struct tree *t, const struct tree_budget *budget)
{
	t->service->trees.n += !t->limited;
	t->limited = true;
	t->budget = *budget;
	tree_check(t);
	schedule_pump(t);
}

void tree_join(struct sandbox *s)
{
	struct tree *t = s->tree;

	if (!t)
		t = s->tree = tree_get(s->service, s->owner, s->id);
	if (!t->limited && (!t->created_at_ms || s->created_at_ms < t->created_at_ms))
		set_created(t, s->created_at_ms);
	roster_add(&t->nodes, &s->listed);
	t->ram_mib += s->config.size.ram_mib;
	t->vcpus += s->config.size.vcpus;
	tree_check(t);
}

void tree_leave(struct sandbox *s)
{
	struct tree *t = s->tree;

	roster_remove(&t->nodes, &s->listed);
	t->ram_mib -= s->config.size.ram_mib;
	t->vcpus -= s->config.size.vcpus;
	schedule_pump(t);
}

/* --- claims ---------------------------------------------------------------------------------- */

/* Returns whether the claim fits into the budget when the tree has `n` sandboxes with `mib` of RAM
 * in all. */
static bool fits_beside(const struct tree *t, const struct tree_claim *claim, size_t n,
			uint64_t mib)
{
	const struct tree_budget *b = &t->budget;

	return (!b->live || n + t->coming + claim->n <= b->live) &&
	       (!b->ram_mib || mib + t->coming_mib + claim->n * claim->mib <= b->ram_mib);
}

static bool has_room(const struct tree *t, const struct tree_claim *claim)
{
	return fits_beside(t, claim, t->nodes.n, t->ram_mib);
}

/* Fills in *f with the limit that the claim would exceed. */
static void say_full(const struct tree *t, const struct tree_claim *claim, struct failure *f)
{
	const struct tree_budget *b = &t->budget;
	uint64_t used_mib = t->ram_mib + t->coming_mib, mib = claim->n * claim->mib;
	size_t live = t->nodes.n + t->coming;

	if (b->live && live + claim->n > b->live)
		failure_set(f, FAIL_TREE_LIMIT, 0,
			    "tree %s has %zu sandboxes, and %u more would exceed its limit live "
			    "(%u): end or freeze some, or ask for fewer",
			    t->root, live, claim->n, b->live);
	else
		failure_set(
			f, FAIL_TREE_LIMIT, 0,
			"the sandboxes of tree %s have %llu MiB, and %llu MiB more would exceed "
			"its limit ram_mib (%llu): end or freeze some, or ask for fewer",
			t->root, (unsigned long long)used_mib, (unsigned long long)mib,
			(unsigned long long)b->ram_mib);
}

/* Fills in *f and returns true if no end of another sandbox can make room for the claim. */
static bool is_hopeless(const struct tree *t, const struct tree_claim *claim, struct failure *f)
{
	const struct tree_budget *b = &t->budget;
	unsigned n = claim->n + (claim->node != NULL);
	uint32_t limit;
	const char *name = used_up(t, limited_cpu_ms(t), &limit);

	if (name)
		failure_set(f, FAIL_TREE_LIMIT, 0, "tree %s has used up its budget: %s is %u",
			    t->root, name, limit);
	else if (b->depth && claim->depth > b->depth)
		failure_set(f, FAIL_TREE_LIMIT, 0,
			    "new sandboxes would have the depth %u, and the limit depth of tree %s "
			    "is %u: fork a sandbox nearer to the root",
			    claim->depth, t->root, b->depth);
	else if (b->live && n > b->live)
		failure_set(f, FAIL_TREE_LIMIT, 0,
			    "%u more sandboxes never fit in tree %s, whose limit live is %u: ask "
			    "for fewer",
			    claim->n, t->root, b->live);
	else if (b->ram_mib && n * claim->mib > b->ram_mib)
		failure_set(f, FAIL_TREE_LIMIT, 0,
			    "%u more sandboxes of %llu MiB never fit in tree %s, whose limit "
			    "ram_mib is %llu: ask for fewer",
			    claim->n, (unsigned long long)claim->mib, t->root,
			    (unsigned long long)b->ram_mib);
	else
		return false;
	return true;
}

static void grant(struct tree_claim *claim)
{
	claim->granted = true;
	claim->tree->coming += claim->n;
	claim->tree->coming_mib += claim->n * claim->mib;
}

static bool is_free(const struct sandbox *s)
{
	return !s->claims && (s->state == SBX_READY || s->state == SBX_RUNNING);
}

/* Returns whether the sandbox cannot be ended to make room for others, because it or one of its
 * descendants is in use. */
static bool stays(const struct sandbox *s)
{
	list_each_of (pair, struct ancestry, of_ancestor, &s->living_descendants)
		if (!is_free(pair->descendant))
			return true;
	return !is_free(s);
}

/* Returns whether enough sandboxes can be ended to make room for the claim. If not, none should be
 * ended, since the claim would fail all the same. */
static bool can_make_room(const struct tree *t, const struct tree_claim *claim)
{
	uint64_t mib = 0;
	size_t n = 0;

	for (size_t i = 0; i < t->nodes.n; i++) {
		const struct sandbox *s = tree_node(t, i);

		if (!stays(s))
			continue;
		n++;
		mib += s->config.size.ram_mib;
	}
	return fits_beside(t, claim, n, mib);
}

/* Returns whether `a` is to be ended rather than `b`, which is older. Sandboxes without a score are
 * ended last: the client has not rated them yet. */
static bool goes_before(const struct sandbox *a, const struct sandbox *b, bool by_score)
{
	if (!a->n_busy != !b->n_busy)
		return !a->n_busy;
	if (!by_score || (!a->score.given && !b->score.given))
		return false;
	if (a->score.given != b->score.given)
		return a->score.given;
	return a->score.value < b->score.value;
}

/* Returns the leaf that is to make room, or NULL. */
static struct sandbox *choose_leaf(const struct tree *t)
{
	struct sandbox *best = NULL;

	for (size_t i = 0; i < t->nodes.n; i++) {
		struct sandbox *s = tree_node(t, i);

		if (!s->children.n && is_free(s) &&
		    (!best || goes_before(s, best, t->budget.at_limit == TREE_END_LOWEST_SCORE)))
			best = s;
	}
	return best;
}

/* Returns true if the claim may go on to wait for room, else false with *f filled. */
static bool make_room(struct tree *t, struct tree_claim *claim, struct failure *f)
{
	if (t->budget.at_limit == TREE_WAIT || claim->freezing)
		return true;
	bool may = t->budget.at_limit != TREE_REFUSE && can_make_room(t, claim);
	struct sandbox *leaf = may ? choose_leaf(t) : NULL;
	if (!leaf) {
		say_full(t, claim, f);
		return false;
	}
	if (t->budget.at_limit == TREE_FREEZE_OLDEST_LEAF) {
		claim->freezing = true;
		claim->claimant->freeze(claim->arg, leaf->id);
		return true;
	}
	t->service->trees.ended++;
	sandbox_end(leaf, "tree_limit",
		    "its tree needed room for new sandboxes, and its at_limit is "
		    "end_lowest_score",
		    false);
	return true;
}

static void stop_waiting(struct tree_claim *claim)
{
	list_del(&claim->link);
	claim->tree->service->trees.waiting--;
}

/* Tries the first claim again. Returns true if this claim is over, or if a sandbox was ended for it
 * so that it may be tried again at once. */
static bool pump_first(struct tree *t)
{
	struct tree_claim *claim = container_of(t->claims.next, struct tree_claim, link);
	size_t before = t->nodes.n;
	struct failure f;

	if (has_room(t, claim)) {
		stop_waiting(claim);
		grant(claim);
		claim->claimant->granted(claim->arg, NULL);
		return true;
	}
	/* The budget may have changed since the claim was made. */
	if (!is_hopeless(t, claim, &f) && make_room(t, claim, &f))
		return t->nodes.n < before;
	stop_waiting(claim);
	t->service->trees.refused++;
	claim->claimant->granted(claim->arg, &f);
	return true;
}

static void pump(void *arg)
{
	struct tree *t = arg;

	tree_hold(t); /* a claim that fails gives back its reference */
	while (!list_empty(&t->claims) && pump_first(t))
		;
	tree_put(t);
}

bool tree_claim(struct tree_claim *claim, struct failure *f)
{
	struct tree *t = claim->tree;
	bool fits = list_empty(&t->claims) && has_room(t, claim);
	bool waits = claim->claimant && t->budget.at_limit != TREE_REFUSE;

	if (t->limited && is_hopeless(t, claim, f)) {
		t->service->trees.refused++;
		return false;
	}
	if (!fits && !waits) {
		say_full(t, claim, f);
		t->service->trees.refused++;
		return false;
	}
	tree_hold(t);
	claim->held = true;
	claim->deletes = t->deletes;
	if (claim->ancestors)
		list_add_tail(&t->starts, &claim->starts);
	if (claim->node)
		claim->node->claims++;
	if (fits) {
		grant(claim);
	} else {
		list_add_tail(&t->claims, &claim->link);
		t->service->trees.waiting++;
		schedule_pump(t);
	}
	return true;
}

bool tree_claim_stands(const struct tree_claim *claim, struct failure *f)
{
	if (!claim->held || (claim->deletes == claim->tree->deletes && !claim->deleted))
		return true;
	failure_set(f, FAIL_DELETED, 0, "%stree %s was deleted meanwhile",
		    claim->deleted ? "this part of " : "", claim->tree->root);
	return false;
}

void tree_claim_again(struct tree_claim *claim)
{
	claim->freezing = false;
	if (claim->held)
		schedule_pump(claim->tree);
}

void tree_claim_drop(struct tree_claim *claim)
{
	struct tree *t = claim->tree;

	if (!claim->held)
		return;
	claim->held = false;
	list_del(&claim->starts);
	if (claim->node)
		claim->node->claims--;
	if (claim->granted) {
		t->coming -= claim->n;
		t->coming_mib -= claim->n * claim->mib;
	} else if (!list_empty(&claim->link)) {
		stop_waiting(claim);
	}
	schedule_pump(t);
	tree_put(t);
}
