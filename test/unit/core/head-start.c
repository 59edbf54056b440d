// SPDX-License-Identifier: Apache-2.0
/* A new sandbox runs ahead of the others until its first call ends, or for a short time. */
#include "test/unit/core/world.h"

#define HEAD_START_MS 2000

static bool timer_held; /* a head start has no end of its own */

void __real_loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms);
void __wrap_loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms);

void __wrap_loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms)
{
	if (!timer_held || delay_ms != HEAD_START_MS)
		__real_loop_timer_set(l, t, delay_ms);
}

/* 2 is WARDEN_NORMAL, while it is made for the pool; 1 is WARDEN_BRINGUP. */
static bool is_ahead(void *arg)
{
	return fakes_with_priorities(arg, "21") > 0;
}

static bool has_ended(void *arg)
{
	return fakes_with_priorities(arg, "212") > 0;
}

static void test_a_head_start_ends_with_the_first_call(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	timer_held = true;
	world_wait_ready(w);
	world_create(w, &m, &(struct sandbox_spec){0});
	world_until(w, is_ahead, w->fakes);
	assert_false(has_ended(w->fakes));
	world_exec(w, &r, m.view.id, "out on");
	world_until(w, has_ended, w->fakes);
	timer_held = false;
}

static void test_a_head_start_ends_in_a_call_that_goes_on(void **state)
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
		TEST(test_a_head_start_ends_with_the_first_call),
		TEST(test_a_head_start_ends_in_a_call_that_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
