// SPDX-License-Identifier: Apache-2.0
/* Checkpoints and freezes on a host of a fleet that has no allowance left: they wait for the
 * tenant's keeper, which the tests play. */
#include "orchestrator/exec/history.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/snapshot/state.h"
#include "orchestrator/store/keys.h"
#include "test/unit/service/world.h"

#define HISTORY_TEXT 64

static struct tenant_wait *asked; /* the last one; NULL: none since forget() */
static unsigned questions;
static struct tenant *tenant;
static struct made box;

static bool on_ask(void *arg, struct tenant *t, struct tenant_wait *w)
{
	assert_ptr_equal(t, tenant);
	asked = w;
	questions++;
	return true;
}

static bool is_asked(void *arg)
{
	return asked != NULL;
}

static bool is_asked_or_over(void *done)
{
	return asked || *(bool *)done;
}

static void until_asked(struct world *w, enum tenant_limit limit, uint32_t lacks)
{
	world_until(w, is_asked, NULL);
	assert_int_equal(asked->lack.limit, limit);
	assert_int_equal(asked->lack.lacks, lacks);
}

static void allow(uint32_t checkpoints, uint32_t space)
{
	tenant->allowed[TENANT_CHECKPOINTS] = checkpoints;
	tenant->allowed[TENANT_SPACES] = space;
}

static void answer(struct world *w, const struct failure *f)
{
	struct tenant_wait *wait = asked;

	asked = NULL;
	tenant_wait_finish(wait, w->service, f);
}

static const struct failure full = {.code = FAIL_QUOTA_REACHED, .text = "nothing is left"};

static int setup(void **state)
{
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	struct world *w;
	struct err e;

	world_setup(state);
	w = *state;
	world_wait_ready(w);
	if (keys_create(service_keys(w->service), "a test", "pro", NULL, text, &key, &e) < 0)
		fail_msg("%s", e.text);
	world_tenant = key->tenant;
	world_create(w, &box, &(struct sandbox_spec){.config.persistent = true});
	assert_true(box.ok);
	tenant = tenant_get(w->service, world_tenant);
	tenant->allowed_until_ms = UINT64_MAX;
	allow(0, 0);
	asked = NULL;
	questions = 0;
	w->service->member = (struct member *)w; /* only whether there is one matters */
	w->service->ask_keeper = on_ask;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	w->service->member = NULL;
	w->service->ask_keeper = NULL;
	tenant_put(tenant);
	return world_teardown(state);
}

/* --- checkpoints ----------------------------------------------------------------------------- */

struct taken {
	bool done, ok;
	char id[SANDBOX_ID_LEN + 1];
	struct failure failure;
	struct op *call;
};

static void on_taken(void *arg, const struct checkpoint_view *view, const struct failure *f)
{
	struct taken *t = arg;

	t->done = true;
	t->ok = view != NULL;
	if (view)
		memcpy(t->id, view->id, sizeof(t->id));
	else
		t->failure = *f;
}

static void on_rolled_back(void *arg, const char *to, const char *kept, const struct failure *f)
{
	world_on_done(arg, f);
}

static void take_start(struct world *w, struct taken *t)
{
	*t = (struct taken){0};
	t->call = service_checkpoint(w->service, TENANT, box.view.id, &(struct checkpoint_spec){0},
				     on_taken, t);
}

static void expect_refused(const struct taken *t, enum failure_code code)
{
	assert_false(t->ok);
	assert_int_equal(t->failure.code, code);
	assert_int_equal(t->failure.lacks, 0);
	assert_int_equal(tenant->checkpoints, 0);
	assert_int_equal(tenant->spaces_bytes, 0);
}

static void test_checkpoint_waits_for_each_limit(void **state)
{
	struct world *w = *state;
	struct taken t;

	take_start(w, &t);
	until_asked(w, TENANT_CHECKPOINTS, 1);
	allow(1, 0);
	answer(w, NULL);
	until_asked(w, TENANT_SPACES, 1);
	assert_int_equal(tenant->checkpoints, 0);
	allow(1, 1);
	answer(w, NULL);
	world_until_true(w, &t.done);
	assert_true(t.ok);
	assert_int_equal(tenant->checkpoints, 1);
	assert_int_equal(tenant_used(tenant, TENANT_SPACES), 1);
	assert_int_equal(questions, 2);
	take_start(w, &t); /* space is left in the unit */
	until_asked(w, TENANT_CHECKPOINTS, 1);
	answer(w, &full);
	world_until_true(w, &t.done);
	assert_int_equal(t.failure.code, FAIL_QUOTA_REACHED);
	assert_string_equal(t.failure.text, full.text);
	assert_int_equal(tenant->checkpoints, 1);
}

static void test_keeper_is_not_asked_without_end(void **state)
{
	struct world *w = *state;
	struct taken t;

	take_start(w, &t);
	for (;;) {
		world_until(w, is_asked_or_over, &t.done);
		if (t.done)
			break;
		answer(w, NULL); /* but others were quicker */
	}
	expect_refused(&t, FAIL_CAP_REACHED);
	assert_in_range(questions, 2, 10);
}

static void test_no_keeper_is_asked_beyond_the_whole_limit(void **state)
{
	struct world *w = *state;
	struct taken t;

	tenant->checkpoints += 200; /* as the tier's */
	take_start(w, &t);
	tenant->checkpoints -= 200;
	world_until_true(w, &t.done);
	expect_refused(&t, FAIL_CAP_REACHED);
	assert_int_equal(questions, 0);
}

/* The snapshot turns out to be larger than what is left. The next snapshot waits, too. */
static void test_snapshot_waits_for_space(void **state)
{
	struct taken first, second;
	struct world *w = *state;

	allow(9, 1);
	tenant->spaces_bytes += SPACES_UNIT - 1;
	take_start(w, &first);
	take_start(w, &second);
	until_asked(w, TENANT_SPACES, 1);
	assert_int_equal(tenant->checkpoints, 2);
	allow(9, 9);
	world_run_for(w, 20);
	assert_false(first.done || second.done);
	answer(w, NULL);
	world_until_true(w, &second.done);
	assert_true(first.ok && second.ok);
	assert_int_equal(questions, 1);
	tenant->spaces_bytes -= SPACES_UNIT - 1;
}

/* Each entry of the history as a letter: a call, a checkpoint, another one; with a + after it if it
 * has a checkpoint, a minus before it if it is undone. */
static bool add_entry(void *text, const struct history_view *view)
{
	const uint8_t kind = view->entry->kind;
	size_t len = strlen(text);

	snprintf((char *)text + len, HISTORY_TEXT - len, "%s%c%s", view->undone ? "-" : "",
		 kind == HISTORY_CALL	      ? 'c'
		 : kind == HISTORY_CHECKPOINT ? 'k'
					      : 'x',
		 view->checkpoint ? "+" : "");
	return true;
}

static void expect_entries(struct world *w, const char *entries)
{
	char text[HISTORY_TEXT] = "";
	struct failure f;

	assert_true(service_history(w->service, TENANT, box.view.id, 0, add_entry, text, &f));
	assert_string_equal(text, entries);
}

static void run_one(struct world *w)
{
	struct run r;

	world_exec(w, &r, box.view.id, "out x");
}

/* The second call ends while the checkpoint of the state after the first one waits. */
static void test_checkpoint_that_waits_belongs_to_the_earlier_call(void **state)
{
	struct world *w = *state;
	struct taken late, last;

	run_one(w);
	allow(9, 1);
	tenant->spaces_bytes += SPACES_UNIT - 1;
	take_start(w, &late);
	until_asked(w, TENANT_SPACES, 1);
	run_one(w);
	expect_entries(w, "xcc");
	allow(9, 9);
	answer(w, NULL);
	world_until_true(w, &late.done);
	assert_true(late.ok);
	expect_entries(w, "xc+c");
	take_start(w, &last);
	world_until_true(w, &last.done);
	tenant->spaces_bytes -= SPACES_UNIT - 1;
	assert_true(last.ok);
	expect_entries(w, "xc+ck+");
	struct done d = {0};
	service_rollback(w->service, TENANT, box.view.id, late.id, NULL, on_rolled_back, &d);
	world_until_true(w, &d.done);
	assert_false(d.failed);
	expect_entries(w, "xc+-c-k+x");
}

static void test_refused_snapshot_leaves_nothing(void **state)
{
	struct taken first, second;
	struct world *w = *state;

	allow(9, 1);
	tenant->spaces_bytes += SPACES_UNIT - 1;
	take_start(w, &first);
	take_start(w, &second);
	until_asked(w, TENANT_SPACES, 1);
	answer(w, &full);
	world_until_true(w, &first.done);
	until_asked(w, TENANT_SPACES, 1); /* for the second one */
	op_abandon(second.call);
	assert_int_equal(questions, 2);
	tenant->spaces_bytes -= SPACES_UNIT - 1;
	expect_refused(&first, FAIL_QUOTA_REACHED);
	take_start(w, &first);
	world_until_true(w, &first.done);
	assert_true(first.ok);
}

static void test_sandbox_that_ends_ends_the_wait(void **state)
{
	struct world *w = *state;
	struct taken early, late;
	struct done d;

	take_start(w, &early);
	until_asked(w, TENANT_CHECKPOINTS, 1);
	allow(9, 1);
	tenant->spaces_bytes += SPACES_UNIT - 1;
	asked = NULL;
	take_start(w, &late);
	until_asked(w, TENANT_SPACES, 1);
	world_delete(w, &d, box.view.id);
	world_until_true(w, &early.done);
	world_until_true(w, &late.done);
	tenant->spaces_bytes -= SPACES_UNIT - 1;
	expect_refused(&early, FAIL_DELETED);
	expect_refused(&late, FAIL_DELETED);
}

/* --- after each call ------------------------------------------------------------------------- */

static void change(struct world *w, const struct sandbox_change *to)
{
	struct done d = {0};

	service_change(w->service, TENANT, box.view.id, to, world_on_done, &d);
	world_until_true(w, &d.done);
	assert_false(d.failed);
}

static void keep_each(struct world *w)
{
	change(w, &(struct sandbox_change){.checkpoint_calls = &(uint32_t){9}});
}

static size_t kept(void)
{
	return snapshots_of_tenant(tenant)->checkpoints.n;
}

struct number {
	size_t n;
};

static bool has_kept(void *arg)
{
	const struct number *want = arg;

	return kept() == want->n;
}

static bool has_replaced(void *id)
{
	return kept() == 1 &&
	       strcmp(snapshots_of_tenant(tenant)->checkpoints.all[0]->place.id, id) != 0;
}

static bool has_failed(void *s)
{
	return snapshots_of(s)->each_call_fails;
}

static void test_each_call_asks_and_then_replaces_the_oldest(void **state)
{
	struct world *w = *state;
	struct sandbox *s = sandbox_living(w->service, TENANT, box.view.id);

	allow(0, 9);
	keep_each(w);
	until_asked(w, TENANT_CHECKPOINTS, 1);
	allow(1, 9);
	answer(w, NULL);
	world_until(w, has_kept, &(struct number){1});
	const struct listed *first = snapshots_of_tenant(tenant)->checkpoints.all[0];
	char id[SANDBOX_ID_LEN + 1];
	memcpy(id, first->place.id, sizeof(id));
	run_one(w);
	until_asked(w, TENANT_CHECKPOINTS, 1);
	assert_int_equal(kept(), 1); /* none is given up before the keeper has answered */
	struct failure none = full;
	none.code = FAIL_CAP_REACHED;
	answer(w, &none);
	world_until(w, has_replaced, id);
	assert_false(snapshots_of(s)->each_call_fails);
}

/* While this host has no allowance, because it lost its keeper, none is removed either. */
static void test_each_call_removes_none_in_vain(void **state)
{
	struct world *w = *state;
	struct failure none = full;

	none.code = FAIL_CAP_REACHED;
	allow(1, 9);
	keep_each(w);
	world_until(w, has_kept, &(struct number){1});
	allow(0, 0);
	run_one(w);
	until_asked(w, TENANT_CHECKPOINTS, 1);
	answer(w, &none);
	world_until(w, has_failed, sandbox_living(w->service, TENANT, box.view.id));
	assert_int_equal(kept(), 1);
}

/* Its homes may use an overdraft then, and there may be room again once it answers. */
static void test_each_call_removes_none_while_the_keeper_is_away(void **state)
{
	struct world *w = *state;
	struct failure none = full;

	none.code = FAIL_CAP_REACHED;
	allow(1, 9);
	keep_each(w);
	world_until(w, has_kept, &(struct number){1});
	const struct listed *first = snapshots_of_tenant(tenant)->checkpoints.all[0];
	char id[SANDBOX_ID_LEN + 1];
	memcpy(id, first->place.id, sizeof(id));
	run_one(w);
	until_asked(w, TENANT_CHECKPOINTS, 1);
	tenant->keeper_away = true;
	answer(w, &none);
	world_until(w, has_failed, sandbox_living(w->service, TENANT, box.view.id));
	assert_false(has_replaced(id));
	assert_int_equal(kept(), 1);
}

static void test_call_overtakes_a_checkpoint_that_waits(void **state)
{
	struct world *w = *state;

	allow(0, 9);
	keep_each(w);
	until_asked(w, TENANT_CHECKPOINTS, 1);
	asked = NULL;
	run_one(w);
	until_asked(w, TENANT_CHECKPOINTS, 1);
	allow(9, 9);
	answer(w, NULL);
	world_until(w, has_kept, &(struct number){1});
}

/* --- freezes --------------------------------------------------------------------------------- */

static struct sandbox *living(struct world *w)
{
	return sandbox_living(w->service, TENANT, box.view.id);
}

static void test_freeze_waits_for_space(void **state)
{
	struct world *w = *state;
	struct frozen z;

	world_freeze_start(w, &z, box.view.id);
	until_asked(w, TENANT_SPACES, 1);
	assert_int_equal(living(w)->state, SBX_FREEZING);
	allow(0, 1);
	answer(w, NULL);
	world_until_true(w, &z.done);
	assert_true(z.ok);
	assert_int_equal(tenant_used(tenant, TENANT_SPACES), 1);
	assert_int_equal(tenant->coming_bytes, 0);
}

static void test_refused_freeze_lets_the_sandbox_run(void **state)
{
	struct world *w = *state;
	struct frozen z;

	world_freeze_start(w, &z, box.view.id);
	until_asked(w, TENANT_SPACES, 1);
	answer(w, &full);
	world_until_true(w, &z.done);
	assert_int_equal(z.failure.code, FAIL_QUOTA_REACHED);
	assert_int_equal(tenant_used(tenant, TENANT_SPACES), 0);
	run_one(w);
}

/* Nothing is written in vain: the failure is the keeper's, not that of the check afterwards. */
static void test_refused_freeze_ends_although_some_space_is_left(void **state)
{
	struct world *w = *state;
	struct frozen z;

	allow(0, 1);
	tenant->spaces_bytes += SPACES_UNIT - 1;
	world_freeze_start(w, &z, box.view.id);
	until_asked(w, TENANT_SPACES, 1);
	answer(w, &full);
	world_until_true(w, &z.done);
	tenant->spaces_bytes -= SPACES_UNIT - 1;
	assert_string_equal(z.failure.text, full.text);
	assert_int_equal(questions, 1);
	run_one(w);
}

static void test_paused_sandbox_waits_for_one_answer(void **state)
{
	struct world *w = *state;
	struct frozen z;

	world_freeze_start(w, &z, box.view.id);
	until_asked(w, TENANT_SPACES, 1);
	answer(w, NULL); /* but others were quicker */
	world_until_true(w, &z.done);
	assert_int_equal(z.failure.code, FAIL_QUOTA_REACHED);
	assert_int_equal(z.failure.lacks, 0);
	assert_int_equal(questions, 1);
	run_one(w);
}

static void test_space_is_set_aside_while_it_is_written(void **state)
{
	struct world *w = *state;
	struct frozen z;

	allow(0, 1);
	world_freeze_start(w, &z, box.view.id);
	for (bool counted = false; !counted; counted = tenant->coming_bytes || z.done)
		world_run_for(w, 1);
	if (!z.done)
		assert_int_equal(tenant_used(tenant, TENANT_SPACES), 1);
	allow(0, 0); /* what was granted holds to the end */
	world_until_true(w, &z.done);
	assert_true(z.ok);
	assert_int_equal(questions, 0);
}

static void test_sandbox_that_ends_while_its_freeze_waits(void **state)
{
	struct world *w = *state;
	struct frozen z;
	struct done d;

	world_freeze_start(w, &z, box.view.id);
	until_asked(w, TENANT_SPACES, 1);
	world_delete(w, &d, box.view.id);
	world_until_true(w, &z.done);
	assert_false(z.ok);
	assert_int_equal(tenant_used(tenant, TENANT_SPACES), 0);
}

static bool has_ended(void *arg)
{
	return !living(arg);
}

static bool is_asked_or_ended(void *arg)
{
	return asked || has_ended(arg);
}

static bool is_frozen(struct world *w)
{
	world_until(w, has_ended, w);
	return snapshots_of_tenant(tenant)->spaces.n == 1;
}

static void end_lifetime(struct world *w)
{
	change(w, &(struct sandbox_change){.timeout_s = 1});
}

static void test_freeze_without_a_request_asks(void **state)
{
	struct world *w = *state;

	end_lifetime(w);
	until_asked(w, TENANT_SPACES, 1);
	allow(0, 1);
	answer(w, NULL);
	assert_true(is_frozen(w));
}

static void test_limit_ends_a_sandbox_as_on_one_host(void **state)
{
	struct world *w = *state;

	end_lifetime(w);
	for (;;) {
		world_until(w, is_asked_or_ended, w);
		if (!asked)
			break;
		answer(w, &full);
	}
	assert_false(is_frozen(w));
	assert_in_range(questions, 2, 10);
}

/* The keeper asks only some hosts at a time for what they can spare. */
static void test_sandbox_is_not_lost_while_hosts_have_space_to_spare(void **state)
{
	struct world *w = *state;

	end_lifetime(w);
	until_asked(w, TENANT_SPACES, 1);
	answer(w, &full);
	until_asked(w, TENANT_SPACES, 1);
	allow(0, 1);
	answer(w, NULL);
	assert_true(is_frozen(w));
	assert_int_equal(questions, 2);
}

static void test_sandbox_is_not_lost_while_the_keeper_is_away(void **state)
{
	struct world *w = *state;
	struct frozen z;

	tenant->keeper_away = true;
	world_freeze_start(w, &z, box.view.id); /* its time is not over */
	until_asked(w, TENANT_SPACES, 1);
	answer(w, &full);
	world_until_true(w, &z.done);
	assert_false(z.ok);
	run_one(w); /* once its VM runs again */
	end_lifetime(w);
	assert_true(is_frozen(w));
	assert_int_equal(questions, 1);
}

static void test_sandbox_is_not_lost_when_the_keeper_does_not_answer(void **state)
{
	struct world *w = *state;

	end_lifetime(w);
	until_asked(w, TENANT_SPACES, 1);
	tenant->keeper_away = true;
	answer(w, &full);
	assert_true(is_frozen(w));
}

/* --- units ----------------------------------------------------------------------------------- */

static void test_bytes_are_rounded_up_to_units(void **state)
{
	struct failure f;

	allow(0, 2);
	tenant->spaces_bytes = SPACES_UNIT;
	assert_int_equal(tenant_used(tenant, TENANT_SPACES), 1);
	assert_true(tenant_has_space(tenant, SPACES_UNIT, "it", &f));
	assert_false(tenant_has_space(tenant, SPACES_UNIT + 1, "it", &f));
	assert_int_equal(f.lacks, 2);
	tenant->spaces_bytes++;
	assert_int_equal(tenant_used(tenant, TENANT_SPACES), 2);
	assert_true(tenant_has_space(tenant, SPACES_UNIT - 1, "it", &f));
	tenant->spaces_bytes = 50ull << 30; /* the tier's limit, and more than this host's part */
	assert_int_equal(tenant_used(tenant, TENANT_SPACES), 3200);
	assert_false(tenant_has_space(tenant, 1, "it", &f));
	assert_int_equal(f.lacks, 0);
	tenant->spaces_bytes = 0;
}

int main(void)
{
#define KEEPER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		KEEPER_TEST(test_checkpoint_waits_for_each_limit),
		KEEPER_TEST(test_keeper_is_not_asked_without_end),
		KEEPER_TEST(test_no_keeper_is_asked_beyond_the_whole_limit),
		KEEPER_TEST(test_snapshot_waits_for_space),
		KEEPER_TEST(test_checkpoint_that_waits_belongs_to_the_earlier_call),
		KEEPER_TEST(test_refused_snapshot_leaves_nothing),
		KEEPER_TEST(test_sandbox_that_ends_ends_the_wait),
		KEEPER_TEST(test_each_call_asks_and_then_replaces_the_oldest),
		KEEPER_TEST(test_each_call_removes_none_in_vain),
		KEEPER_TEST(test_each_call_removes_none_while_the_keeper_is_away),
		KEEPER_TEST(test_call_overtakes_a_checkpoint_that_waits),
		KEEPER_TEST(test_freeze_waits_for_space),
		KEEPER_TEST(test_refused_freeze_lets_the_sandbox_run),
		KEEPER_TEST(test_refused_freeze_ends_although_some_space_is_left),
		KEEPER_TEST(test_paused_sandbox_waits_for_one_answer),
		KEEPER_TEST(test_space_is_set_aside_while_it_is_written),
		KEEPER_TEST(test_sandbox_that_ends_while_its_freeze_waits),
		KEEPER_TEST(test_freeze_without_a_request_asks),
		KEEPER_TEST(test_limit_ends_a_sandbox_as_on_one_host),
		KEEPER_TEST(test_sandbox_is_not_lost_while_hosts_have_space_to_spare),
		KEEPER_TEST(test_sandbox_is_not_lost_while_the_keeper_is_away),
		KEEPER_TEST(test_sandbox_is_not_lost_when_the_keeper_does_not_answer),
		KEEPER_TEST(test_bytes_are_rounded_up_to_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
