// SPDX-License-Identifier: Apache-2.0
/* Merges: what the parent's id refers to afterwards, and what happens to the calls in flight. */
#include <stdlib.h>

#include "test/unit/service/world.h"

static enum failure_code code_of(struct world *w, const char *id)
{
	struct sandbox_view view;
	struct failure f;

	return service_view(w->service, TENANT, id, &view, &f) ? FAIL_NONE : f.code;
}

struct slots {
	struct world *w;
	unsigned slots;
};

static bool has_slots(void *arg)
{
	struct slots *slots = arg;

	return fakes_slots(slots->w->fakes) == slots->slots && service_ready(slots->w->service);
}

static void until_slots(struct world *w, unsigned sandboxes)
{
	struct slots slots = {w, sandboxes + w->config.pool_blank_vms + w->config.pool_warm};

	world_until(w, has_slots, &slots);
}

/* Siblings of one millisecond are listed in the order of their ids: each of these gets a later one.
 */
static void fork_one(struct world *w, char id[SANDBOX_ID_LEN + 1], const char *parent)
{
	struct forked k;

	world_run_for(w, 2);
	world_fork(w, &k, parent, 1);
	if (!k.ok)
		fail_msg("%s", k.failure.text);
	snprintf(id, SANDBOX_ID_LEN + 1, "%s", k.ids[0]);
}

static void merge_well(struct world *w, const char *parent, const char *winner)
{
	struct done d;

	world_merge(w, &d, parent, winner);
	if (d.failed)
		fail_msg("%s", d.failure.text);
}

static void test_parent_continues_as_the_winner(void **state)
{
	char winner[SANDBOX_ID_LEN + 1];
	struct world *w = *state;
	struct history h;
	struct made m;
	struct done d;
	struct run r;

	world_create(w, &m, NULL);
	world_exec(w, &r, m.view.id, "out common");
	fork_one(w, winner, m.view.id);
	world_exec(w, &r, winner, "tree /winner 100644\nout winner");
	world_exec(w, &r, m.view.id, "out parent");
	world_exec(w, &r, m.view.id, "out parent");
	merge_well(w, m.view.id, winner);
	world_history(w, &h, m.view.id);
	assert_string_equal(h.text, "common|=0|winner|=0");
	world_exec(w, &r, m.view.id, "out on");
	assert_string_equal(r.out, "on");
	assert_int_equal(r.first_seq, 7); /* after all events numbered under this id */
	assert_int_equal(code_of(w, winner), FAIL_MERGED);
	world_exec(w, &r, winner, "out never");
	assert_int_equal(r.failure.code, FAIL_MERGED);
	world_delete(w, &d, winner);
	assert_false(d.failed);
	assert_int_equal(code_of(w, m.view.id), FAIL_NONE);
	assert_int_equal(world_metric(w, "merges_total"), 1);
	assert_int_equal(world_metric(w, "sandboxes"), 1);
	until_slots(w, 1);
	/* All of this still holds in the next instance. */
	world_kill_service(w);
	world_start_service(w);
	world_exec(w, &r, m.view.id, "out again");
	assert_string_equal(r.out, "again");
	assert_int_equal(code_of(w, winner), FAIL_MERGED);
	world_delete(w, &d, winner);
	assert_false(d.failed);
	until_slots(w, 1);
}

static void test_invalid_merges_are_refused(void **state)
{
	char child[SANDBOX_ID_LEN + 1], other[SANDBOX_ID_LEN + 1];
	static const char *const nobody = "sbx_00000000000000000000000000000000";
	struct world *w = *state;
	struct made m;

	world_create(w, &m, NULL);
	fork_one(w, child, m.view.id);
	fork_one(w, other, m.view.id);
	const struct {
		const char *parent, *winner;
		enum failure_code code;
	} cases[] = {{m.view.id, m.view.id, FAIL_NOT_A_DESCENDANT},
		     {child, m.view.id, FAIL_NOT_A_DESCENDANT},
		     {child, other, FAIL_NOT_A_DESCENDANT},
		     {nobody, child, FAIL_NOT_FOUND},
		     {m.view.id, nobody, FAIL_NOT_FOUND}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct done d;

		world_merge(w, &d, cases[i].parent, cases[i].winner);
		assert_true(d.failed);
		assert_int_equal(d.failure.code, cases[i].code);
	}
	merge_well(w, m.view.id, child);
	struct done d;
	world_merge(w, &d, m.view.id, child);
	assert_int_equal(d.failure.code, FAIL_MERGED);
}

static void test_merge_fails_only_the_running_call_of_the_parent(void **state)
{
	struct run p_runs = {0}, p_waits = {0}, w_waits = {0};
	/* The error of p_runs may have used numbers above those of w_runs. */
	struct run w_runs = {.gaps = true};
	char winner[SANDBOX_ID_LEN + 1];
	struct world *w = *state;
	struct history h;
	struct made m;

	world_create(w, &m, NULL);
	fork_one(w, winner, m.view.id);
	world_exec_start(w, &p_runs, m.view.id, "out old\nwait\nout never", false);
	world_exec_start(w, &p_waits, m.view.id, "out last", false);
	world_exec_start(w, &w_runs, winner, "out new\nwait\nout still new\nexit 4", false);
	world_exec_start(w, &w_waits, winner, "out then", false);
	world_until_waiting(w, 2);
	merge_well(w, m.view.id, winner);
	assert_true(p_runs.failed);
	assert_int_equal(p_runs.failure.code, FAIL_MERGED_DURING_CALL);
	assert_false(w_runs.over || w_waits.over || p_waits.over);
	fakes_go(w->fakes);
	world_until_true(w, &p_waits.over);
	assert_string_equal(w_runs.out, "new|still new");
	assert_int_equal(w_runs.exit_code, 4);
	assert_string_equal(w_waits.out, "then");
	assert_string_equal(p_waits.out, "last");
	world_history(w, &h, m.view.id);
	assert_string_equal(h.text, "new|still new|=4|then|=0|last|=0");
}

/* A client that does not read applies back-pressure to the winner's output before and after the
 * merge. */
static void test_paused_stream_of_the_winner_continues(void **state)
{
	char winner[SANDBOX_ID_LEN + 1];
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	fork_one(w, winner, m.view.id);
	world_exec_start(w, &r, winner, "out on\nwait\nbig 2000000\nexit 1", true);
	world_until_waiting(w, 1);
	op_pause(r.call);
	merge_well(w, m.view.id, winner);
	fakes_go(w->fakes);
	op_resume(r.call);
	world_until_true(w, &r.over);
	assert_int_equal(r.bytes, 2000003);
	assert_int_equal(r.exit_code, 1);
}

static void test_interrupt_reaches_the_call_of_the_winner(void **state)
{
	char winner[SANDBOX_ID_LEN + 1];
	struct world *w = *state;
	struct run r = {0};
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	fork_one(w, winner, m.view.id);
	world_exec_start(w, &r, winner, "wait\nexit 130", false);
	world_until_waiting(w, 1);
	merge_well(w, m.view.id, winner);
	world_interrupt(w, &d, m.view.id);
	assert_false(d.failed);
	world_until_true(w, &r.over);
	assert_int_equal(r.exit_code, 130);
}

static void test_merge_fails_forks_of_both_sides(void **state)
{
	char winner[SANDBOX_ID_LEN + 1];
	struct world *w = *state;
	struct forked k[4];
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	fork_one(w, winner, m.view.id);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 2);
	for (int i = 0; i < 4; i++)
		world_fork_start(w, &k[i], i % 2 ? winner : m.view.id, 1, false);
	world_until_waiting(w, 2);
	merge_well(w, m.view.id, winner);
	for (int i = 0; i < 4; i++) {
		world_until_true(w, &k[i].done);
		assert_int_equal(k[i].failure.code, FAIL_MERGED_DURING_CALL);
	}
	fakes_go(w->fakes);
	until_slots(w, 1);
	world_exec(w, &r, m.view.id, "out well");
	assert_string_equal(r.out, "well");
	assert_int_equal(fakes_forks(w->fakes), 3); /* none for the queued forks */
}

/* The lineage is a - b - c - d, and e is a second child of b. Merges d into b, then e into a. */
static void test_merges_keep_lineage_correct(void **state)
{
	char b[SANDBOX_ID_LEN + 1], c[SANDBOX_ID_LEN + 1], d[SANDBOX_ID_LEN + 1],
		e[SANDBOX_ID_LEN + 1], of_d[SANDBOX_ID_LEN + 1];
	struct world *w = *state;
	struct sandbox_view view;
	struct failure f;
	struct made m;
	struct done done;

	world_create(w, &m, NULL);
	fork_one(w, b, m.view.id);
	fork_one(w, c, b);
	fork_one(w, e, b);
	fork_one(w, d, c);
	fork_one(w, of_d, d);
	merge_well(w, b, d);
	for (int life = 0; life < 2; life++) {
		assert_true(service_view(w->service, TENANT, of_d, &view, &f));
		assert_string_equal(view.parent, b); /* b has d's VM now */
		assert_true(service_view(w->service, TENANT, c, &view, &f));
		assert_string_equal(view.parent, b);
		assert_null(view.children[0]);
		assert_true(service_view(w->service, TENANT, b, &view, &f));
		assert_string_equal(view.parent, m.view.id);
		assert_string_equal(view.children[0], c);
		assert_string_equal(view.children[1], e);
		assert_string_equal(view.children[2], of_d);
		assert_null(view.children[3]);
		world_kill_service(w);
		world_start_service(w);
		struct run r; /* a call waits until its sandbox is adopted */
		const char *const all[] = {m.view.id, b, c, e, of_d};
		for (int i = 0; i < 5; i++)
			world_exec(w, &r, all[i], "out on");
	}
	merge_well(w, c, of_d); /* of_d still descends from c */
	world_merge(w, &done, c, e);
	assert_int_equal(done.failure.code, FAIL_NOT_A_DESCENDANT);
	merge_well(w, m.view.id, e);
	merge_well(w, m.view.id, c);
	merge_well(w, m.view.id, b);
	assert_true(service_view(w->service, TENANT, m.view.id, &view, &f));
	assert_null(view.children[0]);
	until_slots(w, 1);
}

static void test_merge_changes_nothing_when_catalogue_write_fails(void **state)
{
	char winner[SANDBOX_ID_LEN + 1];
	struct world *w = *state;
	struct run p = {0}, q;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	fork_one(w, winner, m.view.id);
	world_exec_start(w, &p, m.view.id, "wait\nout parent", false);
	world_until_waiting(w, 1);
	world_lock_catalogue(w, true);
	world_merge(w, &d, m.view.id, winner);
	world_lock_catalogue(w, false);
	assert_int_equal(d.failure.code, FAIL_CATALOGUE);
	assert_false(p.over);
	fakes_go(w->fakes);
	world_until_true(w, &p.over);
	assert_string_equal(p.out, "parent");
	world_exec(w, &q, winner, "out winner");
	assert_string_equal(q.out, "winner");
	merge_well(w, m.view.id, winner);
}

static void test_merge_survives_a_kill_of_the_service(void **state)
{
	char winner[SANDBOX_ID_LEN + 1];
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	fork_one(w, winner, m.view.id);
	for (int i = 0; i < 3; i++) {
		struct done d = {0};

		/* Kills the service while the winner's call still runs and before the old VM has
		 * ended. */
		r = (struct run){0};
		world_exec_start(w, &r, winner, "wait", false);
		world_until_waiting(w, 1);
		world_merge(w, &d, m.view.id, winner);
		assert_false(d.failed);
		world_kill_service(w);
		world_start_service(w);
		fakes_go(w->fakes);
		world_exec(w, &r, m.view.id, "out on");
		assert_string_equal(r.out, "on");
		assert_int_equal(code_of(w, winner), FAIL_MERGED);
		until_slots(w, 1);
		fork_one(w, winner, m.view.id);
	}
}

static void test_death_of_the_winners_vm_fails_the_parent(void **state)
{
	char winner[SANDBOX_ID_LEN + 1];
	struct world *w = *state;
	struct run r;
	struct made m;

	world_create(w, &m, NULL);
	fork_one(w, winner, m.view.id);
	merge_well(w, m.view.id, winner);
	world_exec(w, &r, m.view.id, "out on\ndie");
	assert_int_equal(r.failure.code, FAIL_VM_DIED);
	assert_int_equal(code_of(w, m.view.id), FAIL_VM_DIED);
	until_slots(w, 0);
}

static struct {
	struct world *w;
	const char *parent, *winner;
	struct done done;
} inside;

static void on_done(void *arg, const struct failure *f)
{
	inside.done.done = true;
	inside.done.failed = f != NULL;
}

static void merge_inside(struct run *r, const struct event *ev)
{
	if (r->events == 1)
		service_merge(inside.w->service, TENANT, inside.parent, inside.winner, on_done,
			      NULL);
}

static void test_sandboxes_can_be_merged_in_an_event_of_either_side(void **state)
{
	struct world *w = *state;

	for (int of_winner = 0; of_winner < 2; of_winner++) {
		struct run r = {.on_event = merge_inside}, after;
		char winner[SANDBOX_ID_LEN + 1];
		struct made m;

		world_create(w, &m, NULL);
		fork_one(w, winner, m.view.id);
		inside.w = w;
		inside.parent = m.view.id;
		inside.winner = winner;
		inside.done = (struct done){0};
		world_exec_start(w, &r, of_winner ? winner : m.view.id, "out one\nout two", false);
		world_until_true(w, &r.over);
		world_until_true(w, &inside.done.done);
		assert_false(inside.done.failed);
		assert_int_equal(r.failed, !of_winner);
		if (of_winner)
			assert_string_equal(r.out, "one|two");
		world_exec(w, &after, m.view.id, "out after");
		assert_string_equal(after.out, "after");
		struct done d;
		world_delete(w, &d, m.view.id);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_parent_continues_as_the_winner),
		TEST(test_invalid_merges_are_refused),
		TEST(test_merge_fails_only_the_running_call_of_the_parent),
		TEST(test_paused_stream_of_the_winner_continues),
		TEST(test_interrupt_reaches_the_call_of_the_winner),
		TEST(test_merge_fails_forks_of_both_sides),
		TEST(test_merges_keep_lineage_correct),
		TEST(test_merge_changes_nothing_when_catalogue_write_fails),
		TEST(test_merge_survives_a_kill_of_the_service),
		TEST(test_death_of_the_winners_vm_fails_the_parent),
		TEST(test_sandboxes_can_be_merged_in_an_event_of_either_side),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
