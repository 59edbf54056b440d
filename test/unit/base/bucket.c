// SPDX-License-Identifier: Apache-2.0
/* Token buckets: the rate holds over any time. No number makes a bucket exceed its rate, or makes a
 * user wait forever. */
#include "base/bucket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define SECOND 1000000000ull

static void test_new_bucket_allows_a_burst_of_one_second(void **state)
{
	struct bucket b = {.per_s = 100};
	uint64_t now = 5 * SECOND;

	for (int i = 0; i < 100; i++) {
		assert_int_equal(bucket_wait_ns(&b, now), 0);
		bucket_use(&b, 1, now);
	}
	bucket_use(&b, 1, now);
	assert_int_equal(bucket_wait_ns(&b, now), SECOND / 100);
	assert_int_equal(bucket_wait_ns(&b, now + SECOND / 100), 0);
}

static void test_rate_of_0_means_no_limit(void **state)
{
	struct bucket b = {0};

	bucket_use(&b, UINT64_MAX, 1);
	assert_int_equal(bucket_wait_ns(&b, 1), 0);
}

static void test_use_over_the_burst_delays_the_next(void **state)
{
	struct bucket b = {.per_s = 1000};

	bucket_use(&b, 5000, SECOND);
	assert_int_equal(bucket_wait_ns(&b, SECOND), 4 * SECOND);
	assert_int_equal(bucket_wait_ns(&b, 5 * SECOND), 0);
}

static void test_wait_is_bounded_for_any_amount(void **state)
{
	static const uint32_t rates[] = {1, 3, 1000000000, UINT32_MAX};
	static const uint64_t amounts[] = {UINT64_MAX, UINT64_MAX / SECOND, UINT64_MAX / 3};
	static const uint64_t times[] = {0, SECOND, UINT64_MAX / 2};

	for (size_t r = 0; r < 4; r++)
		for (size_t a = 0; a < 3; a++)
			for (size_t t = 0; t < 3; t++) {
				struct bucket b = {.per_s = rates[r]};

				for (int i = 0; i < 3; i++)
					bucket_use(&b, amounts[a], times[t]);
				uint64_t wait = bucket_wait_ns(&b, times[t]);
				assert_in_range(wait, 1, BUCKET_DEBT_NS);
				assert_int_equal(bucket_wait_ns(&b, times[t] + wait), 0);
			}
}

static void test_burst_ends_at_a_high_rate(void **state)
{
	struct bucket b = {.per_s = 3000000000u};
	uint64_t used = 0;

	bucket_use(&b, 3000000000u - 3000, 1); /* leaves 1000 ns; 1 use takes 1/3 ns */
	while (!bucket_wait_ns(&b, 1) && used <= 3000) {
		bucket_use(&b, 1, 1);
		used++;
	}
	assert_in_range(used, 1, 3000);
}

/* After the clock stepped back, nobody waits longer than the longest debt. */
static void test_clock_going_backwards_causes_no_long_wait(void **state)
{
	struct bucket b = {.per_s = 10};

	bucket_use(&b, 10, 1000000 * SECOND);
	assert_in_range(bucket_wait_ns(&b, SECOND), 0, BUCKET_DEBT_NS);
	bucket_use(&b, 1, SECOND);
	assert_int_equal(bucket_wait_ns(&b, SECOND + BUCKET_DEBT_NS), 0);
}

/* In any sequence of uses, the total never exceeds the burst, plus the rate times the time, plus
 * the one use that exceeded the burst. A user that always wants more gets at least the rate. */
static void test_random_uses_match_the_rate(void **state)
{
	srandom(7);
	for (int round = 0; round < 200; round++) {
		uint32_t rate = 1 + (uint32_t)random() % 100000;
		uint64_t most = 1 + (uint64_t)random() % (2 * rate);
		uint64_t begin = (uint64_t)random(), now = begin, used = 0, last = 0;
		struct bucket b = {.per_s = rate};

		for (int i = 0; i < 500; i++) {
			now += bucket_wait_ns(&b, now);
			assert_int_equal(bucket_wait_ns(&b, now), 0);
			last = 1 + (uint64_t)random() % most;
			bucket_use(&b, last, now);
			used += last;
			double s = (double)(now - begin) / SECOND;
			assert_true((double)used <= rate * (s + 1) + (double)last + 1);
			assert_true((double)used >= rate * (s + 1) * 0.99 - 501 || s == 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new_bucket_allows_a_burst_of_one_second),
		cmocka_unit_test(test_rate_of_0_means_no_limit),
		cmocka_unit_test(test_use_over_the_burst_delays_the_next),
		cmocka_unit_test(test_wait_is_bounded_for_any_amount),
		cmocka_unit_test(test_burst_ends_at_a_high_rate),
		cmocka_unit_test(test_clock_going_backwards_causes_no_long_wait),
		cmocka_unit_test(test_random_uses_match_the_rate),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
