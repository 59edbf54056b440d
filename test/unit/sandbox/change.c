// SPDX-License-Identifier: Apache-2.0
/* A sandbox's settings change while it lives: limits, metadata, persistence, network access. */
#include <stdlib.h>

#include "orchestrator/snapshot/state.h"
#include "orchestrator/store/keys.h"
#include "test/unit/service/world.h"

static void on_changed(void *arg, const struct failure *f)
{
	struct done *d = arg;

	d->done = true;
	d->failed = f != NULL;
	if (f)
		d->failure = *f;
}

static void change_start(struct world *w, struct done *d, const char *id,
			 const struct sandbox_change *change)
{
	*d = (struct done){0};
	service_change(w->service, TENANT, id, change, on_changed, d);
}

static void change(struct world *w, struct done *d, const char *id,
		   const struct sandbox_change *change)
{
	change_start(w, d, id, change);
	world_until_true(w, &d->done);
}

static void change_well(struct world *w, const char *id, const struct sandbox_change *to)
{
	struct done d;

	change(w, &d, id, to);
	if (d.failed)
		fail_msg("%s", d.failure.text);
}

static struct sandbox_view view_of(struct world *w, const char *id)
{
	struct sandbox_view view;
	struct failure f;

	if (!service_view(w->service, TENANT, id, &view, &f))
		fail_msg("%s", f.text);
	return view;
}

static void restart(struct world *w)
{
	world_kill_service(w);
	world_start_service(w);
}

static void test_changes_last_over_a_restart(void **state)
{
	const struct sandbox_change to = {.timeout_s = 5000,
					  .idle_timeout_s = 700,
					  .persistent = CHANGE_TRUE,
					  .metadata = "{\"run\":2}"};
	const struct sandbox_spec spec = {
		.config.timeout_s = 100, .config.egress = true, .metadata = "{\"run\":1}"};
	struct world *w = *state;
	struct made m;

	world_create(w, &m, &spec);
	change_well(w, m.view.id, &to);
	for (int i = 0; i < 2; i++) {
		struct sandbox_view view = view_of(w, m.view.id);
		int64_t lifetime_ms = view.expires_at_ms - view.created_at_ms;

		assert_in_range(lifetime_ms, 5000000, 5000000 + 150000);
		assert_int_equal(view.config.timeout_s, 5000);
		assert_int_equal(view.config.idle_timeout_s, 700);
		assert_true(view.config.persistent && view.config.egress);
		assert_string_equal(view.metadata, "{\"run\":2}");
		restart(w);
	}
}

static void test_empty_change_changes_nothing(void **state)
{
	const struct sandbox_spec spec = {.config.persistent = true, .metadata = "{\"a\":1}"};
	const struct sandbox_change none = {0};
	struct world *w = *state;
	struct made m;

	world_create(w, &m, &spec);
	change_well(w, m.view.id, &none);
	struct sandbox_view view = view_of(w, m.view.id);
	assert_int_equal(view.expires_at_ms, m.view.expires_at_ms);
	assert_int_equal(view.config.idle_timeout_s, m.view.config.idle_timeout_s);
	assert_true(view.config.persistent && !view.config.egress);
	assert_string_equal(view.metadata, "{\"a\":1}");
}

struct gone {
	struct world *w;
	const char *id, *text;
};

static bool is_gone(void *arg)
{
	const struct gone *gone = arg;
	struct sandbox_view view;
	struct failure f;

	return !service_view(gone->w->service, TENANT, gone->id, &view, &f) &&
	       strstr(f.text, gone->text);
}

static void test_shortened_limits_end_the_sandbox(void **state)
{
	static const struct {
		struct sandbox_change to;
		const char *text;
	} cases[] = {
		{{.timeout_s = 1}, "its lifetime of"},
		{{.idle_timeout_s = 1}, "it was idle for 1 s"},
	};
	struct world *w = *state;
	struct made m;

	for (size_t i = 0; i < 2; i++) {
		world_create(w, &m, NULL);
		change_well(w, m.view.id, &cases[i].to);
		struct gone gone = {w, m.view.id, cases[i].text};
		world_until(w, is_gone, &gone);
	}
}

/* The tier "free" allows a lifetime of half an hour. */
static void test_tier_limits_the_whole_lifetime(void **state)
{
	const struct sandbox_change longer = {
		.timeout_s = 1000000, .idle_timeout_s = 1000000, .persistent = CHANGE_TRUE};
	char text[KEY_TEXT_LEN + 1];
	struct world *w = *state;
	const struct key *key;
	struct made m;
	struct err e;

	assert_int_equal(keys_create(service_keys(w->service), "a", "free", NULL, text, &key, &e),
			 0);
	world_tenant = key->tenant;
	const struct sandbox_spec spec = {.config.timeout_s = 600};
	world_create(w, &m, &spec);
	for (int i = 0; i < 2; i++) {
		change_well(w, m.view.id, &longer);
		struct sandbox_view view = view_of(w, m.view.id);
		assert_int_equal(view.expires_at_ms - view.created_at_ms, 1800 * 1000);
		assert_true(view.config.idle_timeout_s < 1000000);
		assert_false(view.config.persistent);
	}
}

static void test_failed_change_changes_nothing(void **state)
{
	const struct sandbox_change to = {.timeout_s = 5, .metadata = "{\"run\":2}"};
	const struct sandbox_change open = {.egress = CHANGE_TRUE, .metadata = "{}"};
	const struct sandbox_spec spec = {.metadata = "{\"run\":1}"};
	struct world *w = *state;
	struct made m;
	struct done d;

	world_create(w, &m, &spec);
	world_lock_catalogue(w, true);
	change(w, &d, m.view.id, &to);
	world_lock_catalogue(w, false);
	assert_true(d.failed);
	assert_int_equal(d.failure.code, FAIL_CATALOGUE);
	change(w, &d, m.view.id, &open);
	assert_true(d.failed);
	assert_int_equal(d.failure.code, FAIL_EGRESS_CLOSED);
	struct sandbox_view view = view_of(w, m.view.id);
	assert_int_equal(view.expires_at_ms, m.view.expires_at_ms);
	assert_string_equal(view.metadata, "{\"run\":1}");
	change(w, &d, "sbx_00000000000000000000000000000000", &to);
	assert_int_equal(d.failure.code, FAIL_NOT_FOUND);
}

/* --- network access ------------------------------------------------------------------------- */

static const struct sandbox_change close_egress = {.egress = CHANGE_FALSE};

static void test_egress_is_closed_for_good(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct done two[2];

	world_create(w, &m, NULL);
	assert_int_equal(fakes_closed(w->fakes), 0);
	change_start(w, &two[0], m.view.id, &close_egress);
	change_start(w, &two[1], m.view.id, &close_egress);
	for (int i = 0; i < 2; i++) {
		world_until_true(w, &two[i].done);
		assert_false(two[i].failed);
		assert_int_equal(fakes_closed(w->fakes), 1);
	}
	world_fork(w, &k, m.view.id, 1);
	assert_false(view_of(w, k.ids[0]).config.egress);
	restart(w);
	assert_false(view_of(w, m.view.id).config.egress);
	assert_int_equal(fakes_closed(w->fakes), 2);
}

static void test_sandbox_ends_when_egress_cannot_be_closed(void **state)
{
	struct world *w = *state;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_EGRESS, 1);
	change(w, &d, m.view.id, &close_egress);
	assert_true(d.failed);
	assert_int_equal(d.failure.code, FAIL_VM_DIED);
	fakes_fault(w->fakes, FAKES_EGRESS, 0);
}

static void test_delete_ends_a_change_that_waits(void **state)
{
	struct world *w = *state;
	struct made m;
	struct done d, gone;

	world_create(w, &m, NULL);
	change_start(w, &d, m.view.id, &close_egress);
	world_delete(w, &gone, m.view.id);
	world_until_true(w, &d.done);
}

/* A child that was forked before its parent was closed still has access; and the other way. */
static void test_merge_keeps_egress_closed(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct done d;

	for (int i = 0; i < 2; i++) {
		world_create(w, &m, NULL);
		world_fork(w, &k, m.view.id, 1);
		change_well(w, i ? k.ids[0] : m.view.id, &close_egress);
		world_merge(w, &d, m.view.id, k.ids[0]);
		assert_false(d.failed);
		assert_false(view_of(w, m.view.id).config.egress);
		assert_int_equal(fakes_closed(w->fakes), 1);
		restart(w);
		assert_false(view_of(w, m.view.id).config.egress);
		world_delete(w, &d, m.view.id);
	}
}

static void test_merge_ends_a_change_that_waits(void **state)
{
	struct world *w = *state;
	struct done d, ends[2];
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_fork(w, &k, m.view.id, 1);
	change_start(w, &ends[0], m.view.id, &close_egress);
	change_start(w, &ends[1], k.ids[0], &close_egress);
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed);
	for (int i = 0; i < 2; i++)
		world_until_true(w, &ends[i].done);
	assert_false(view_of(w, m.view.id).config.egress);
}

/* The child has access, says so, and loses it in the merge. */
static void test_fork_in_progress_keeps_the_settings_of_its_start(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_wait_ready(w); /* so that the next VM to be seeded is the child */
	fakes_fault(w->fakes, FAKES_SEED_WAIT, 1);
	world_fork_start(w, &k, m.view.id, 1, true);
	world_until_waiting(w, 1);
	change_well(w, m.view.id, &close_egress);
	fakes_go(w->fakes);
	world_until_true(w, &k.done);
	assert_true(k.ok && view_of(w, k.ids[0]).config.egress);
	assert_int_equal(fakes_closed(w->fakes), 1);
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed || view_of(w, m.view.id).config.egress);
	assert_int_equal(fakes_closed(w->fakes), 1);
}

static void test_merge_fails_when_egress_cannot_be_closed(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_fork(w, &k, m.view.id, 1);
	change_well(w, m.view.id, &close_egress);
	fakes_fault(w->fakes, FAKES_EGRESS, 1);
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_true(d.failed);
	assert_int_equal(d.failure.code, FAIL_VM_DIED);
	fakes_fault(w->fakes, FAKES_EGRESS, 0);
}

/* --- freezes -------------------------------------------------------------------------------- */

static bool freeze_waits(void *arg)
{
	return snapshots_of(arg)->freeze != NULL;
}

/* Two other freezes hold the slots, so the idle sandbox's freeze waits for its turn. */
static void test_changed_limit_stops_a_waiting_freeze(void **state)
{
	const struct sandbox_spec idle = {.config.persistent = true, .config.idle_timeout_s = 1};
	static const struct sandbox_change changes[] = {
		{.idle_timeout_s = 1000}, {.idle_timeout_s = 1000, .persistent = CHANGE_FALSE}};
	struct world *w = *state;
	struct frozen busy[2];
	struct made m[2], short_lived[2];
	struct run r;

	snapshots_of_service(w->service)->slot_limit_ms = UINT32_MAX;
	for (int i = 0; i < 2; i++)
		world_create(w, &m[i], NULL);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 2);
	for (int i = 0; i < 2; i++)
		world_freeze_start(w, &busy[i], m[i].view.id);
	world_until_waiting(w, 2);
	for (int i = 0; i < 2; i++) {
		world_create(w, &short_lived[i], &idle);
		struct sandbox *s = sandbox_of_any(w->service, short_lived[i].view.id);
		world_until(w, freeze_waits, s);
		change_well(w, s->id, &changes[i]);
		assert_false(freeze_waits(s));
	}
	fakes_go(w->fakes);
	for (int i = 0; i < 2; i++) {
		world_until_true(w, &busy[i].done);
		assert_true(busy[i].ok);
		world_exec(w, &r, short_lived[i].view.id, "out alive");
		assert_string_equal(r.out, "alive");
	}
}

static void test_sandbox_that_is_being_frozen_refuses_changes(void **state)
{
	const struct sandbox_change to = {.timeout_s = 100};
	struct world *w = *state;
	struct frozen z;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_freeze_start(w, &z, m.view.id);
	world_until_waiting(w, 1);
	change(w, &d, m.view.id, &to);
	assert_int_equal(d.failure.code, FAIL_FREEZING);
	fakes_go(w->fakes);
	world_until_true(w, &z.done);
	assert_true(z.ok);
	change(w, &d, m.view.id, &to);
	assert_int_equal(d.failure.code, FAIL_FROZEN);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_changes_last_over_a_restart),
		TEST(test_empty_change_changes_nothing),
		TEST(test_shortened_limits_end_the_sandbox),
		TEST(test_tier_limits_the_whole_lifetime),
		TEST(test_failed_change_changes_nothing),
		TEST(test_egress_is_closed_for_good),
		TEST(test_sandbox_ends_when_egress_cannot_be_closed),
		TEST(test_delete_ends_a_change_that_waits),
		TEST(test_merge_keeps_egress_closed),
		TEST(test_merge_ends_a_change_that_waits),
		TEST(test_fork_in_progress_keeps_the_settings_of_its_start),
		TEST(test_merge_fails_when_egress_cannot_be_closed),
		TEST(test_changed_limit_stops_a_waiting_freeze),
		TEST(test_sandbox_that_is_being_frozen_refuses_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
