// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "orchestrator/http/rate.h"

#define S 1000000000ull

static int set_up(void **state)
{
	*state = calloc(1, sizeof(struct rate));
	return *state ? 0 : -1;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

/* Returns how many of `n` tokens were given, all at `now`. */
static unsigned taken(struct rate *r, uint64_t who, unsigned n, uint64_t now)
{
	unsigned got = 0;

	for (unsigned i = 0; i < n; i++)
		got += rate_take(r, who, now) == 0;
	return got;
}

static void burst_is_followed_by_the_rate(void **state)
{
	struct rate *r = *state;

	rate_init(r, 5);
	assert_int_equal(taken(r, 1, 100, 7 * S), 5 * RATE_BURST_S);
	assert_int_equal(taken(r, 1, 100, 8 * S), 5);
	assert_int_equal(taken(r, 1, 100, 8 * S + S / 5), 1);
	assert_int_equal(taken(r, 1, 100, 1000 * S), 5 * RATE_BURST_S);
}

static void waiting_time_is_returned(void **state)
{
	struct rate *r = *state;

	rate_init(r, 2);
	assert_int_equal(taken(r, 1, 100, 7 * S), 2 * RATE_BURST_S);
	assert_int_equal(rate_take(r, 1, 7 * S), 500);
	assert_int_equal(rate_take(r, 1, 7 * S + 499999999), 1);
	assert_int_equal(rate_take(r, 1, 7 * S + 500000000), 0);
}

static void clients_have_separate_buckets(void **state)
{
	struct rate *r = *state;

	rate_init(r, 1);
	for (uint64_t who = 0; who < 100; who++)
		assert_int_equal(taken(r, who << 32, 100, S), RATE_BURST_S);
}

static void zero_means_no_limit(void **state)
{
	struct rate *r = *state;

	rate_init(r, 0);
	assert_int_equal(taken(r, 1, 100000, S), 100000);
}

static void lowest_and_highest_rate_work(void **state)
{
	struct rate *r = *state;

	rate_init(r, 1000000);
	assert_int_equal(taken(r, 1, 11000000, S), 10000000);
	rate_init(r, 1);
	assert_int_equal(taken(r, 2, 100, 0), RATE_BURST_S);
}

/* Most active clients keep their bucket while very many others make one request each. */
static void expect_buckets_are_kept(struct rate *r)
{
	const uint64_t busy = 1000;
	unsigned refused = 0;

	for (uint64_t who = 0; who < busy; who++)
		assert_int_equal(taken(r, who, 100, 100 * S), RATE_BURST_S);
	for (uint64_t who = busy; who < 1000000; who++)
		assert_int_equal(rate_take(r, who, 100 * S), 0);
	for (uint64_t who = 0; who < busy; who++)
		refused += rate_take(r, who, 100 * S) != 0;
	assert_true(refused > busy * 9 / 10);
}

static void full_table_replaces_the_fullest_bucket(void **state)
{
	rate_init(*state, 1);
	expect_buckets_are_kept(*state);
}

static void consecutive_clients_do_not_share_sets(void **state)
{
	struct rate *r = *state;

	rate_init(r, 1);
	r->secret = UINT64_MAX / 3; /* multiples of it are close to 0, 1/3 and 2/3 of 2^64 */
	expect_buckets_are_kept(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(burst_is_followed_by_the_rate, set_up, tear_down),
		cmocka_unit_test_setup_teardown(waiting_time_is_returned, set_up, tear_down),
		cmocka_unit_test_setup_teardown(clients_have_separate_buckets, set_up, tear_down),
		cmocka_unit_test_setup_teardown(zero_means_no_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lowest_and_highest_rate_work, set_up, tear_down),
		cmocka_unit_test_setup_teardown(full_table_replaces_the_fullest_bucket, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(consecutive_clients_do_not_share_sets, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
