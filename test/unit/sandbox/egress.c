// SPDX-License-Identifier: Apache-2.0
/* A sandbox without egress is handed out only after the warden confirmed that its packets stay on
 * the host. */
#include <stdlib.h>

#include "test/unit/service/world.h"

static const struct sandbox_spec closed; /* egress is false */

static void test_egress_is_open_by_default(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	assert_true(m.ok && m.view.config.egress);
	world_fork(w, &k, m.view.id, 2);
	assert_true(k.ok);
	assert_int_equal(fakes_closed(w->fakes), 0);
}

static void test_pooled_sandbox_is_closed(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	world_wait_ready(w);
	world_create_start(w, &m, &closed);
	world_until_true(w, &m.done);
	assert_true(m.ok);
	assert_false(m.view.config.egress);
	assert_int_equal(fakes_closed(w->fakes), 1);
	assert_int_equal(world_metric(w, "pool_hits_total"), 1);
	world_exec(w, &r, m.view.id, "out on");
	assert_string_equal(r.out, "on");
}

static void test_sandbox_made_on_demand_is_closed_before_it_has_a_guest(void **state)
{
	struct sandbox_spec spec = {.config.size.ram_mib = 256};
	struct world *w = *state;
	struct made m;

	world_create(w, &m, &spec);
	assert_true(m.ok);
	assert_int_equal(fakes_closed(w->fakes), 1);
	assert_int_equal(fakes_closed_first(w->fakes), 1);
}

static void test_children_are_closed_before_they_have_a_guest(void **state)
{
	struct world *w = *state;
	struct sandbox_view view;
	struct failure f;
	struct forked k;
	struct made m;

	world_create(w, &m, &closed);
	unsigned before = fakes_closed_first(w->fakes);
	world_fork(w, &k, m.view.id, 3);
	assert_true(k.ok);
	assert_int_equal(fakes_closed(w->fakes), 4);
	assert_int_equal(fakes_closed_first(w->fakes), before + 3);
	for (int i = 0; i < 3; i++) {
		assert_true(service_view(w->service, TENANT, k.ids[i], &view, &f));
		assert_false(view.config.egress);
	}
}

static void test_sandbox_is_not_handed_out_when_closing_fails(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_EGRESS, 1);
	world_create(w, &m, &closed); /* another VM replaces the failed one */
	assert_true(m.ok);
	assert_int_equal(fakes_closed(w->fakes), 1);
	fakes_fault(w->fakes, FAKES_EGRESS, 100);
	world_fork(w, &k, m.view.id, 2);
	assert_false(k.ok);
	assert_int_equal(k.failure.code, FAIL_VM_FAILED);
	world_create(w, &m, &closed);
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_VM_FAILED);
	assert_non_null(strstr(m.failure.text, "its egress can't be closed"));
	fakes_fault(w->fakes, FAKES_EGRESS, 0);
	world_wait_ready(w);
}

/* Kills a VM at each step of a fork. */
static void test_vm_death_at_each_step_leaks_nothing(void **state)
{
	for (int n = 1; n <= 12; n++) {
		struct world *w;
		struct forked k;
		struct made m;

		world_setup((void **)&w);
		world_create(w, &m, &closed);
		assert_true(m.ok);
		fakes_fault(w->fakes, FAKES_DIE_STEP, n);
		world_fork(w, &k, m.view.id, 2);
		assert_true(k.ok || k.failure.code == FAIL_FORK_FAILED ||
			    k.failure.code == FAIL_VM_FAILED || k.failure.code == FAIL_VM_DIED);
		fakes_fault(w->fakes, FAKES_DIE_STEP, 0);
		world_teardown((void **)&w);
	}
}

static bool is_gone(void *arg)
{
	void **args = arg;
	struct sandbox_view view;
	struct failure f;

	return !service_view(args[0], TENANT, args[1], &view, &f) && f.code == FAIL_VM_DIED;
}

static void test_next_instance_closes_egress_again(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	world_create(w, &m, &closed);
	world_kill_service(w);
	world_start_service(w);
	world_exec(w, &r, m.view.id, "out on");
	assert_string_equal(r.out, "on");
	assert_int_equal(fakes_closed(w->fakes), 1);
	world_kill_service(w);
	fakes_fault(w->fakes, FAKES_EGRESS, 1);
	world_start_service(w);
	void *args[] = {w->service, m.view.id};
	world_until(w, is_gone, args);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_egress_is_open_by_default),
		TEST(test_pooled_sandbox_is_closed),
		TEST(test_sandbox_made_on_demand_is_closed_before_it_has_a_guest),
		TEST(test_children_are_closed_before_they_have_a_guest),
		TEST(test_sandbox_is_not_handed_out_when_closing_fails),
		cmocka_unit_test(test_vm_death_at_each_step_leaks_nothing),
		TEST(test_next_instance_closes_egress_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
