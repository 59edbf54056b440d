// SPDX-License-Identifier: Apache-2.0
/* A new sandbox has a head start, a higher priority, until its first call ends; for 2 s at most. */
#include "test/unit/service/world.h"

#define HEAD_START_MS 2000

static bool timer_is_disabled; /* if true, a head start ends only with a call */

void __real_loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms);
void __wrap_loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms);

void __wrap_loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms)
{
	if (!timer_is_disabled || delay_ms != HEAD_START_MS)
		__real_loop_timer_set(l, t, delay_ms);
}

/* The pool makes the VM with priority 2 (WARDEN_NORMAL); the head start is 1 (WARDEN_BRINGUP). */
static bool is_ahead(void *arg)
{
	return fakes_with_priorities(arg, "21") > 0;
}

static bool has_ended(void *arg)
{
	return fakes_with_priorities(arg, "212") > 0;
}

static void test_head_start_ends_with_the_first_call(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	timer_is_disabled = true;
	world_wait_ready(w);
	world_create(w, &m, &(struct sandbox_spec){0});
	world_until(w, is_ahead, w->fakes);
	assert_false(has_ended(w->fakes));
	world_exec(w, &r, m.view.id, "out on");
	world_until(w, has_ended, w->fakes);
	timer_is_disabled = false;
}

static void test_head_start_ends_during_a_long_call(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r = {0};

	world_wait_ready(w);
	world_create(w, &m, &(struct sandbox_spec){0});
	world_exec_start(w, &r, m.view.id, "wait", false);
	world_until(w, has_ended, w->fakes);
	assert_false(r.over);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_head_start_ends_with_the_first_call),
		TEST(test_head_start_ends_during_a_long_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
