// SPDX-License-Identifier: Apache-2.0
/* The host sleeps: the loop's clock stops, but the timeouts of sandboxes count the sleep. */
#include <time.h>

#include "test/unit/service/world.h"

static time_t slept_s;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	int ret = __real_clock_gettime(clock, t);

	if (clock == CLOCK_BOOTTIME || clock == CLOCK_REALTIME)
		t->tv_sec += slept_s;
	return ret;
}

/* The number of times a timer was set to a delay within this range of milliseconds. */
static struct {
	uint64_t from, to;
	unsigned set;
} watched;

void __real_loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms);
void __wrap_loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms);

void __wrap_loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms)
{
	watched.set += delay_ms > watched.from && delay_ms <= watched.to;
	__real_loop_timer_set(l, t, delay_ms);
}

struct asleep {
	struct world *w;
	struct made old, idle, young;
};

static const char *end_of(struct asleep *a, const char *id)
{
	static struct failure f;
	struct sandbox_view view;

	return service_view(a->w->service, TENANT, id, &view, &f) ? "" : f.text;
}

static bool both_are_gone(void *arg)
{
	struct asleep *a = arg;

	return strstr(end_of(a, a->old.view.id), "its lifetime of 1000 s is over") &&
	       strstr(end_of(a, a->idle.view.id), "it was idle for 500 s");
}

static void test_timeouts_during_the_sleep_take_effect_soon_after(void **state)
{
	const struct sandbox_spec old = {.config.timeout_s = 1000, .config.idle_timeout_s = 100000};
	const struct sandbox_spec idle = {.config.timeout_s = 100000, .config.idle_timeout_s = 500};
	const struct sandbox_spec young = {.config.timeout_s = 100000,
					   .config.idle_timeout_s = 100000};
	struct asleep a = {.w = *state};
	struct run r;

	world_create(a.w, &a.old, &old);
	world_create(a.w, &a.idle, &idle);
	world_create(a.w, &a.young, &young);
	slept_s = 2000;
	world_until(a.w, both_are_gone, &a);
	world_exec(a.w, &r, a.young.view.id, "out on");
	assert_string_equal(r.out, "on");
	slept_s = 0;
}

static void watch(uint64_t from_s, uint64_t to_s)
{
	watched.from = from_s * 1000;
	watched.to = to_s * 1000;
	watched.set = 0;
}

static bool is_set(void *arg)
{
	return watched.set;
}

/* The guest enforces the call's time limit; two minutes later the service would do it. */
static void test_time_limit_of_a_call_includes_the_sleep(void **state)
{
	const struct sandbox_spec spec = {.config.timeout_s = 100000,
					  .config.idle_timeout_s = 100000};
	struct world *w = *state;
	struct made m;
	struct run r = {0};

	world_create(w, &m, &spec);
	watch(5000, 5120);
	world_exec_timed_start(w, &r, m.view.id, "wait", 5000000);
	world_until(w, is_set, NULL);
	watch(3000, 3120);
	slept_s = 2000;
	world_until(w, is_set, NULL);
	assert_int_equal(watched.set, 1);
	watch(119, 120); /* after the limit, the service waits 2 minutes */
	slept_s = 10000;
	world_until(w, is_set, NULL);
	assert_false(r.over);
	op_abandon(r.call);
	slept_s = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_timeouts_during_the_sleep_take_effect_soon_after, world_setup,
			world_teardown),
		cmocka_unit_test_setup_teardown(test_time_limit_of_a_call_includes_the_sleep,
						world_setup, world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
