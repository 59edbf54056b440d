// SPDX-License-Identifier: Apache-2.0
/* The host sleeps: the loop's clock stands still meanwhile, the times of sandboxes go on. */
#include <time.h>

#include "test/unit/core/world.h"

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

struct asleep {
	struct world *w;
	struct made old, idle, young;
};

static const char *end_of(struct asleep *a, const char *id)
{
	static struct failure f;
	struct sandbox_view view;

	return core_view(a->w->core, TENANT, id, &view, &f) ? "" : f.text;
}

static bool both_are_gone(void *arg)
{
	struct asleep *a = arg;

	return strstr(end_of(a, a->old.view.id), "its lifetime of 1000 s is over") &&
	       strstr(end_of(a, a->idle.view.id), "nothing was done in it for 500 s");
}

static void test_what_was_over_in_the_sleep_ends_soon_after(void **state)
{
	const struct sandbox_spec old = {.timeout_s = 1000, .idle_timeout_s = 100000};
	const struct sandbox_spec idle = {.timeout_s = 100000, .idle_timeout_s = 500};
	const struct sandbox_spec young = {.timeout_s = 100000, .idle_timeout_s = 100000};
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_what_was_over_in_the_sleep_ends_soon_after,
						world_setup, world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
