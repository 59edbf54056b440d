// SPDX-License-Identifier: Apache-2.0
/* The service dies and comes back; the VMs have gone on. */
#include <sqlite3.h>

#include "test/unit/core/world.h"

static void test_a_sandbox_is_there_again(void **state)
{
	const char *const env[] = {"K=v", NULL};
	struct sandbox_spec spec = {.env = env, .metadata = "{\"m\":1}", .ram_mib = 192};
	struct world *w = *state;
	struct sandbox_view view;
	struct failure f;
	struct made m;
	struct run before, after;

	world_create(w, &m, &spec);
	world_exec(w, &before, m.view.id, "out before");
	world_kill_core(w);
	world_start_core(w);
	assert_true(core_view(w->core, TENANT, m.view.id, &view, &f));
	assert_string_equal(view.metadata, "{\"m\":1}");
	assert_int_equal(view.ram_mib, 192);
	assert_int_equal(view.created_at_ms, m.view.created_at_ms);
	assert_int_equal(view.expires_at_ms, m.view.expires_at_ms);
	world_exec(w, &after, m.view.id, "env");
	assert_string_equal(after.out, "K=v ");
	assert_true(after.first_seq > before.last_seq);
	world_wait_ready(w);
	/* Shells and warm sandboxes of the life before are gone. */
	assert_int_equal(fakes_live(w->fakes), 3);
}

static bool one_waits(void *arg)
{
	return fakes_waiting(arg) == 1;
}

static void test_a_call_that_ran_does_not_block_the_next(void **state)
{
	struct world *w = *state;
	struct run lost = {0}, next = {0};
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &lost, m.view.id, "wait", false);
	world_until(w, one_waits, w->fakes);
	world_kill_core(w);
	world_start_core(w);
	world_exec_start(w, &next, m.view.id, "out next", false);
	fakes_go(w->fakes);
	world_until_true(w, &next.over);
	assert_string_equal(next.out, "next");
}

static bool is_gone(void *arg)
{
	void **args = arg;
	struct sandbox_view view;
	struct failure f;

	return !core_view(args[0], TENANT, args[1], &view, &f) && !strcmp(f.code, args[2]);
}

static void test_a_vm_that_died_meanwhile_is_told(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	world_kill_core(w);
	for (uint32_t slot = 0; slot < 8; slot++)
		fakes_kill(w->fakes, slot);
	world_start_core(w);
	world_exec_start(w, &r, m.view.id, "out never", false);
	world_until_true(w, &r.over);
	assert_true(r.failed);
	assert_string_equal(r.failure.code, "vm_died");
	/* Still told by the next life. */
	world_kill_core(w);
	world_start_core(w);
	void *args[] = {w->core, m.view.id, "vm_died"};
	assert_true(is_gone(args));
}

static void catalogue_run(const struct world *w, const char *sql)
{
	char path[512];
	struct sqlite3 *db;

	snprintf(path, sizeof(path), "%s/catalogue.db", w->config.state_dir);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_a_vm_that_is_not_as_the_catalogue_says_is_not_taken_over(void **state)
{
	struct world *w = *state;
	const struct sandbox_spec spec = {.ram_mib = 192};
	const char *const changes[] = {"UPDATE sandboxes SET vcpus = 3",
				       "UPDATE sandboxes SET ram_mib = 256"};

	for (size_t i = 0; i < 2; i++) {
		struct run r = {0};
		struct made m;

		world_create(w, &m, &spec);
		world_kill_core(w);
		catalogue_run(w, changes[i]);
		world_start_core(w);
		world_exec_start(w, &r, m.view.id, "out never", false);
		world_until_true(w, &r.over);
		assert_true(r.failed);
		assert_string_equal(r.failure.code, "vm_died");
		assert_non_null(strstr(r.failure.text, "1 vCPUs, 192 MiB; it was made with"));
	}
}

static void test_lifetime_goes_on_while_the_service_is_away(void **state)
{
	struct sandbox_spec spec = {.timeout_s = 1};
	struct world *w = *state;
	struct made m;

	world_create(w, &m, &spec);
	world_kill_core(w);
	world_start_core(w);
	void *args[] = {w->core, m.view.id, "expired"};
	world_until(w, is_gone, args);
}

static void test_a_deleted_one_does_not_come_back(void **state)
{
	struct world *w = *state;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_delete_start(w, &d, m.view.id);
	world_kill_core(w); /* before its VM is gone */
	world_start_core(w);
	void *args[] = {w->core, m.view.id, "not_found"};
	assert_true(is_gone(args));
	world_wait_ready(w);
	assert_int_equal(fakes_live(w->fakes), 2);
}

static void test_many_lives_leave_nothing(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	for (int i = 0; i < 10; i++) {
		world_kill_core(w); /* at any moment of its start */
		world_start_core(w);
		world_exec(w, &r, m.view.id, "out on");
		assert_string_equal(r.out, "on");
	}
	world_wait_ready(w);
	assert_int_equal(fakes_live(w->fakes), 3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_sandbox_is_there_again),
		TEST(test_a_call_that_ran_does_not_block_the_next),
		TEST(test_a_vm_that_died_meanwhile_is_told),
		TEST(test_a_vm_that_is_not_as_the_catalogue_says_is_not_taken_over),
		TEST(test_lifetime_goes_on_while_the_service_is_away),
		TEST(test_a_deleted_one_does_not_come_back),
		TEST(test_many_lives_leave_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
