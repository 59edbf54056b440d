// SPDX-License-Identifier: Apache-2.0
/* Trees of sandboxes: who belongs to one, and what its budget allows. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/sandbox/tenant.h"
#include "test/unit/service/world.h"

static void create_root(struct world *w, char id[static SANDBOX_ID_LEN + 1],
			const struct tree_budget *budget)
{
	const struct sandbox_spec spec = {.tree = budget};
	struct made m;

	world_create(w, &m, &spec);
	assert_true(m.ok);
	memcpy(id, m.view.id, sizeof(m.view.id));
}

static struct sandbox_view view_of(struct world *w, const char *id)
{
	struct sandbox_view view;
	struct failure f;

	assert_true(service_view(w->service, TENANT, id, &view, &f));
	return view;
}

static enum failure_code end_of(struct world *w, const char *id)
{
	struct sandbox_view view;
	struct failure f = {0};

	service_view(w->service, TENANT, id, &view, &f);
	return f.code;
}

static struct tree_view tree_of(struct world *w, const char *id)
{
	struct tree_view view;
	struct failure f;

	assert_true(service_tree(w->service, TENANT, id, &view, &f));
	return view;
}

static void on_done(void *arg, const struct failure *f)
{
	*(bool *)arg = !f;
}

static void set_score(struct world *w, const char *id, double score)
{
	const struct sandbox_change change = {.score = {true, score}};
	bool done = false;

	service_change(w->service, TENANT, id, &change, on_done, &done);
	world_until_true(w, &done);
}

static void expect_refused(struct world *w, const char *id, unsigned n, const char *what)
{
	struct forked k;

	world_fork(w, &k, id, n);
	assert_false(k.ok);
	assert_int_equal(k.failure.code, FAIL_TREE_LIMIT);
	assert_non_null(strstr(k.failure.text, what));
}

static bool waits_one(void *arg)
{
	struct world *w = arg;

	return world_metric(w, "tree_waits") == 1;
}

/* --- who belongs to a tree -------------------------------------------------------------------- */

static void test_descendants_keep_the_root_of_their_tree(void **state)
{
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k, grandchild;
	struct done d;

	world_create_id(w, root);
	assert_string_equal(view_of(w, root).root, root);
	assert_int_equal(view_of(w, root).depth, 0);
	world_fork(w, &k, root, 1);
	world_fork(w, &grandchild, k.ids[0], 1);
	assert_int_equal(view_of(w, grandchild.ids[0]).depth, 2);
	world_delete(w, &d, root);
	assert_string_equal(view_of(w, grandchild.ids[0]).root, root);
	assert_int_equal(tree_of(w, root).live, 2);
	assert_string_equal(tree_of(w, grandchild.ids[0]).root, root);
	assert_false(tree_of(w, root).limited);
}

static void test_space_belongs_to_the_tree_and_its_resume_takes_room(void **state)
{
	const struct tree_budget budget = {.live = 2};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct space_view space;
	struct frozen z;
	struct forked k;
	struct failure f;
	struct done d;
	struct made m;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 1);
	set_score(w, k.ids[0], 0.5);
	world_freeze(w, &z, k.ids[0]);
	assert_true(z.ok);
	assert_true(service_space_view(w->service, TENANT, z.id, &space, &f));
	assert_string_equal(space.root, root);
	world_fork(w, &k, root, 1);
	assert_true(k.ok);
	world_resume(w, &m, z.id);
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_TREE_LIMIT);
	world_delete(w, &d, k.ids[0]);
	world_resume(w, &m, z.id);
	assert_true(m.ok);
	assert_string_equal(view_of(w, m.view.id).root, root);
	assert_int_equal(view_of(w, m.view.id).depth, 1);
	assert_true(view_of(w, m.view.id).score.value == 0.5);
	expect_refused(w, root, 1, "live");
}

static void test_space_keeps_the_budget_when_all_sandboxes_have_ended(void **state)
{
	const struct tree_budget budget = {.live = 1};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct frozen z;
	struct made m;

	create_root(w, root, &budget);
	world_freeze(w, &z, root);
	assert_int_equal(tree_of(w, root).live, 0);
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
	world_resume(w, &m, z.id);
	assert_true(m.ok);
	expect_refused(w, m.view.id, 1, "never fit");
}

static void test_merge_leaves_room_for_one_more(void **state)
{
	const struct tree_budget budget = {.live = 2};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k;
	struct done d;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 1);
	expect_refused(w, root, 1, "live");
	world_merge(w, &d, root, k.ids[0]);
	assert_false(d.failed);
	assert_int_equal(view_of(w, root).depth, 0);
	world_fork(w, &k, root, 1);
	assert_true(k.ok);
}

static void test_budget_survives_a_restart_and_ends_with_its_tree(void **state)
{
	const struct tree_budget budget = {.live = 3, .depth = 7, .at_limit = TREE_WAIT};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k;
	struct failure f;
	struct done d;
	struct tree_view view;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 2);
	world_delete(w, &d, root);
	uint64_t spent_ms = tree_of(w, root).cpu_ms;
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
	view = tree_of(w, root);
	assert_true(view.limited);
	assert_int_equal(view.budget.live, 3);
	assert_int_equal(view.budget.depth, 7);
	assert_int_equal(view.budget.at_limit, TREE_WAIT);
	assert_true(view.cpu_ms >= spent_ms);
	assert_int_equal(world_metric(w, "trees"), 1);
	world_delete(w, &d, k.ids[0]);
	world_delete(w, &d, k.ids[1]);
	assert_int_equal(world_metric(w, "trees"), 0);
	assert_false(service_tree(w->service, TENANT, root, &view, &f));
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
	assert_int_equal(world_metric(w, "trees"), 0);
}

static void test_delete_ends_a_subtree_or_all(void **state)
{
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k, below;
	bool done = false;

	world_create_id(w, root);
	world_fork(w, &k, root, 2);
	world_fork(w, &below, k.ids[0], 2);
	service_tree_delete(w->service, TENANT, k.ids[0], on_done, &done);
	world_until_true(w, &done);
	assert_int_equal(tree_of(w, root).live, 2);
	assert_int_equal(end_of(w, below.ids[1]), FAIL_NOT_FOUND);
	assert_int_equal(end_of(w, k.ids[1]), FAIL_NONE);
	done = false;
	service_tree_delete(w->service, TENANT, root, on_done, &done);
	world_until_true(w, &done);
	assert_int_equal(world_metric(w, "sandboxes"), 0);
}

/* --- limits that refuse ----------------------------------------------------------------------- */

static void test_fork_beyond_a_limit_is_refused_whole(void **state)
{
	const struct tree_budget budget = {.live = 3, .depth = 1};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k;
	struct done d;

	create_root(w, root, &budget);
	expect_refused(w, root, 3, "never fit");
	world_fork(w, &k, root, 1);
	assert_true(k.ok);
	expect_refused(w, root, 2, "has 2 sandboxes, and 2 more would exceed its limit live (3)");
	assert_int_equal(world_metric(w, "sandboxes"), 2);
	expect_refused(w, k.ids[0], 1, "depth");
	world_delete(w, &d, k.ids[0]);
	world_fork(w, &k, root, 2);
	assert_true(k.ok);
}

static void test_ram_is_limited(void **state)
{
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k;
	struct made m;

	world_create_id(w, root);
	uint64_t mib = view_of(w, root).config.size.ram_mib;
	create_root(w, root, &(struct tree_budget){.ram_mib = 2 * mib});
	world_fork(w, &k, root, 1);
	assert_true(k.ok);
	expect_refused(w, root, 1, "ram_mib");
	world_create(w, &m,
		     &(struct sandbox_spec){.tree = &(struct tree_budget){.ram_mib = mib - 1}});
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_OUT_OF_RANGE);
}

/* --- limits that wait or make room --------------------------------------------------------------
 */

static void test_forks_wait_in_order(void **state)
{
	const struct tree_budget budget = {.live = 4, .at_limit = TREE_WAIT};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k, two, one;
	struct done d;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 3);
	world_fork_start(w, &two, root, 2, false);
	world_fork_start(w, &one, root, 1, false);
	world_delete(w, &d, k.ids[0]);
	world_run_for(w, 20);
	assert_false(two.done || one.done); /* the second one fits, but is not the first */
	assert_int_equal(world_metric(w, "tree_waits"), 2);
	world_delete(w, &d, k.ids[1]);
	world_until_true(w, &two.done);
	assert_true(two.ok);
	assert_false(one.done);
	world_delete(w, &d, k.ids[2]);
	world_until_true(w, &one.done);
	assert_true(one.ok);
	assert_int_equal(tree_of(w, root).live, 4);
}

static void test_fork_that_stops_waiting_leaves_nothing(void **state)
{
	const struct tree_budget budget = {.live = 2, .at_limit = TREE_WAIT};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k, left, parents;
	struct done d;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 1);
	world_fork_start(w, &left, root, 1, false);
	world_fork_start(w, &parents, k.ids[0], 1, false);
	op_abandon(left.call);
	world_until(w, waits_one, w);
	world_delete(w, &d, k.ids[0]);
	world_until_true(w, &parents.done);
	assert_int_equal(parents.failure.code, FAIL_DELETED);
	assert_int_equal(world_metric(w, "tree_waits"), 0);
	assert_int_equal(tree_of(w, root).live, 1);
	assert_false(left.done);
}

static void test_leaf_with_the_lowest_score_ends(void **state)
{
	const struct tree_budget budget = {.live = 5, .at_limit = TREE_END_LOWEST_SCORE};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k, one;
	struct run r = {0};
	struct done d;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 4);
	/* Without a score: 2. With a running call: 3. */
	set_score(w, k.ids[0], 0.5);
	set_score(w, k.ids[1], -2);
	set_score(w, k.ids[3], -3);
	world_exec_start(w, &r, k.ids[3], "wait", false);
	world_until_true(w, &r.started);
	world_fork(w, &one, root, 1);
	assert_true(one.ok);
	assert_int_equal(end_of(w, k.ids[1]), FAIL_TREE_ENDED);
	world_fork(w, &one, k.ids[0], 1); /* which does not end itself */
	assert_true(one.ok);
	assert_int_equal(end_of(w, k.ids[0]), FAIL_NONE);
	assert_int_equal(end_of(w, k.ids[3]), FAIL_NONE);
	assert_int_equal(world_metric(w, "tree_ends_total"), 2);
	assert_int_equal(tree_of(w, root).live, 5);
	world_delete(w, &d, k.ids[3]);
	world_until_true(w, &r.over);
}

static void test_no_leaf_ends_for_a_fork_that_gets_no_room_anyway(void **state)
{
	const struct tree_budget budget = {.live = 4, .at_limit = TREE_END_LOWEST_SCORE};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k, below, more;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 2);
	world_fork(w, &below, k.ids[0], 1);
	expect_refused(w, below.ids[0], 2, "live"); /* its ancestors stay, and are two */
	assert_int_equal(end_of(w, k.ids[1]), FAIL_NONE);
	world_fork(w, &more, below.ids[0], 1);
	assert_true(more.ok);
	assert_int_equal(end_of(w, k.ids[1]), FAIL_TREE_ENDED);
}

static void test_oldest_leaf_is_frozen(void **state)
{
	const struct tree_budget budget = {.live = 2, .at_limit = TREE_FREEZE_OLDEST_LEAF};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k, more;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 1);
	world_fork(w, &more, root, 1);
	assert_true(more.ok);
	assert_int_equal(end_of(w, k.ids[0]), FAIL_FROZEN);
	assert_int_equal(world_metric(w, "spaces"), 1);
	assert_int_equal(tree_of(w, root).live, 2);
	/* The only leaf is the sandbox that is forked, and its parent is no leaf. */
	expect_refused(w, more.ids[0], 1, "live");
}

static void test_fork_fails_if_the_leaf_cannot_be_frozen(void **state)
{
	const struct tree_budget budget = {.live = 2, .at_limit = TREE_FREEZE_OLDEST_LEAF};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked k, more;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 1);
	fakes_fault(w->fakes, FAKES_FORK, 1);
	world_fork(w, &more, root, 1);
	assert_int_equal(more.failure.code, FAIL_FREEZE_FAILED);
	assert_int_equal(end_of(w, k.ids[0]), FAIL_NONE);
	world_fork(w, &more, root, 1);
	assert_true(more.ok);
}

/* The leaf is older than the sandbox that is forked, and therefore freed before it. */
static void test_service_stops_while_a_leaf_is_frozen_for_a_fork(void **state)
{
	const struct tree_budget budget = {.live = 3, .at_limit = TREE_FREEZE_OLDEST_LEAF};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked leaf, node, more;

	create_root(w, root, &budget);
	world_fork(w, &leaf, root, 1);
	world_fork(w, &node, root, 1);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_fork_start(w, &more, node.ids[0], 1, false);
	world_until_waiting(w, 1);
	assert_string_equal(view_of(w, leaf.ids[0]).state, "freezing");
	world_kill_service(w);
	fakes_go(w->fakes);
	world_start_service(w);
	world_wait_ready(w);
	assert_int_equal(tree_of(w, root).live, 3);
}

/* A fork that has room but no children yet. */
static void test_forks_at_the_same_time_share_the_room(void **state)
{
	const struct tree_budget budget = {.live = 4};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct forked first, second;

	create_root(w, root, &budget);
	world_fork_start(w, &first, root, 2, false);
	world_fork_start(w, &second, root, 2, false);
	world_until_true(w, &second.done);
	assert_int_equal(second.failure.code, FAIL_TREE_LIMIT);
	world_until_true(w, &first.done);
	assert_true(first.ok);
	/* A fork that fails gives its room back. */
	fakes_fault(w->fakes, FAKES_FORK, 1);
	world_fork(w, &second, root, 1);
	assert_int_equal(second.failure.code, FAIL_FORK_FAILED);
	world_fork(w, &second, root, 1);
	assert_true(second.ok);
}

static void change_budget(struct world *w, const char *id, const struct tree_change *change)
{
	struct failure f;

	assert_true(service_tree_change(w->service, TENANT, id, change, &f));
}

static void test_changed_budget_counts_at_once_and_after_a_restart(void **state)
{
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct tree_change to = {.budget.live = 2};
	struct forked k, more;

	world_create_id(w, root); /* without a budget */
	world_fork(w, &k, root, 2);
	change_budget(w, k.ids[0], &to); /* any sandbox changes that of its tree */
	expect_refused(w, root, 1, "has 3 sandboxes, and 1 more would exceed its limit live (2)");
	assert_int_equal(tree_of(w, root).live, 3); /* what exceeds it stays */
	assert_int_equal(world_metric(w, "trees"), 1);
	to.budget = (struct tree_budget){.live = 4, .depth = 1};
	change_budget(w, root, &to);
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
	assert_int_equal(tree_of(w, root).budget.live, 4);
	expect_refused(w, k.ids[0], 1, "depth");
	world_fork(w, &more, root, 1);
	assert_true(more.ok);
	expect_refused(w, root, 1, "live");
}

static void test_waiting_fork_meets_a_changed_budget(void **state)
{
	const struct tree_budget budget = {.live = 3, .at_limit = TREE_WAIT};
	struct world *w = *state;
	char root[SANDBOX_ID_LEN + 1];
	struct tree_change to = {.budget.live = 5};
	struct forked k, gets, never, refused;

	create_root(w, root, &budget);
	world_fork(w, &k, root, 2);
	world_fork_start(w, &gets, root, 2, false);
	change_budget(w, root, &to);
	world_until_true(w, &gets.done);
	assert_true(gets.ok);
	world_fork_start(w, &never, root, 3, false);
	world_fork_start(w, &refused, root, 1, false);
	to.budget.live = 3;
	change_budget(w, root, &to);
	world_until_true(w, &never.done);
	assert_non_null(strstr(never.failure.text, "never fit"));
	assert_false(refused.done);
	to = (struct tree_change){.at_limit = true}; /* refuse */
	change_budget(w, root, &to);
	world_until_true(w, &refused.done);
	assert_int_equal(refused.failure.code, FAIL_TREE_LIMIT);
	assert_int_equal(tree_of(w, root).live, 5);
	assert_int_equal(world_metric(w, "tree_waits"), 0);
}

#define STEPS	150
#define PENDING 6

struct walk {
	struct world *w;
	char root[SANDBOX_ID_LEN + 1];
	struct forked forks[PENDING];
	bool pending[PENDING];
};

static bool all_are_done(void *arg)
{
	struct walk *walk = arg;

	for (unsigned i = 0; i < PENDING; i++)
		if (walk->pending[i] && !walk->forks[i].done)
			return false;
	return true;
}

/* Deletes the newest child of the root, if there is one. */
static bool delete_one(struct walk *walk)
{
	struct sandbox_view view = view_of(walk->w, walk->root);
	char id[SANDBOX_ID_LEN + 1];
	struct done d;

	if (!view.n_children)
		return false;
	memcpy(id, view.children[view.n_children - 1], sizeof(id));
	world_delete(walk->w, &d, id);
	return true;
}

static void step(struct walk *walk)
{
	unsigned i = (unsigned)rand() % PENDING;

	if (walk->pending[i] && walk->forks[i].done) {
		walk->pending[i] = false;
	} else if (walk->pending[i] && rand() % 4 == 0) {
		op_abandon(walk->forks[i].call);
		walk->pending[i] = false;
	} else if (walk->pending[i]) {
		delete_one(walk);
	} else {
		world_fork_start(walk->w, &walk->forks[i], walk->root, 1 + (unsigned)rand() % 4,
				 false);
		walk->pending[i] = true;
	}
	world_run_for(walk->w, (unsigned)rand() % 3);
	assert_in_range(tree_of(walk->w, walk->root).live, 1, 5);
}

static void test_random_forks_never_exceed_the_budget_and_all_get_room(void **state)
{
	const struct tree_budget budget = {.live = 5, .at_limit = TREE_WAIT};
	struct walk walk = {.w = *state};
	unsigned seed = (unsigned)time(NULL);

	print_message("seed %u\n", seed);
	srand(seed);
	create_root(walk.w, walk.root, &budget);
	for (unsigned i = 0; i < STEPS; i++)
		step(&walk);
	while (!all_are_done(&walk))
		if (!delete_one(&walk))
			world_run_for(walk.w, 1);
	while (delete_one(&walk))
		;
	assert_int_equal(world_metric(walk.w, "tree_waits"), 0);
	world_fork(walk.w, &walk.forks[0], walk.root, 4); /* nothing is left of the others */
	assert_true(walk.forks[0].ok);
}

/* --- time ------------------------------------------------------------------------------------- */

static bool has_ended(void *arg)
{
	struct world *w = arg;
	/* The CPU time of the fakes' VMs is that of this process. */
	clock_t until = clock() + CLOCKS_PER_SEC / 100;

	while (clock() < until)
		;
	return world_metric(w, "sandboxes") == 0;
}

/* The budget comes last: a machine that stands still for its time ends the tree before a fork. */
static void expect_end(struct world *w, const struct tree_budget *budget, const char *limit)
{
	char root[SANDBOX_ID_LEN + 1];
	struct sandbox_view view;
	struct failure f;
	struct forked k;

	world_create_id(w, root);
	world_fork(w, &k, root, 2);
	assert_true(k.ok);
	change_budget(w, root, &(struct tree_change){.budget = *budget});
	world_until(w, has_ended, w);
	assert_false(service_view(w->service, TENANT, root, &view, &f));
	assert_int_equal(f.code, FAIL_TREE_ENDED);
	assert_non_null(strstr(f.text, limit));
}

static void test_tree_ends_when_its_time_is_used_up(void **state)
{
	struct world *w = *state;

	expect_end(w, &(struct tree_budget){.wall_s = 1}, "wall_seconds is 1");
	uint64_t used_s = (uint64_t)clock() / CLOCKS_PER_SEC;
	expect_end(w, &(struct tree_budget){.cpu_s = (uint32_t)(3 * used_s + 5)}, "cpu_seconds");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_descendants_keep_the_root_of_their_tree),
		TEST(test_space_belongs_to_the_tree_and_its_resume_takes_room),
		TEST(test_space_keeps_the_budget_when_all_sandboxes_have_ended),
		TEST(test_merge_leaves_room_for_one_more),
		TEST(test_budget_survives_a_restart_and_ends_with_its_tree),
		TEST(test_delete_ends_a_subtree_or_all),
		TEST(test_fork_beyond_a_limit_is_refused_whole),
		TEST(test_ram_is_limited),
		TEST(test_forks_wait_in_order),
		TEST(test_fork_that_stops_waiting_leaves_nothing),
		TEST(test_leaf_with_the_lowest_score_ends),
		TEST(test_no_leaf_ends_for_a_fork_that_gets_no_room_anyway),
		TEST(test_oldest_leaf_is_frozen),
		TEST(test_fork_fails_if_the_leaf_cannot_be_frozen),
		TEST(test_service_stops_while_a_leaf_is_frozen_for_a_fork),
		TEST(test_forks_at_the_same_time_share_the_room),
		TEST(test_changed_budget_counts_at_once_and_after_a_restart),
		TEST(test_waiting_fork_meets_a_changed_budget),
		TEST(test_random_forks_never_exceed_the_budget_and_all_get_room),
		TEST(test_tree_ends_when_its_time_is_used_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
