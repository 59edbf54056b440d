// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "orchestrator/observe/ring.h"

static const struct usage_query all = {.most = USAGE_KEPT};

static void add(struct usage_ring *ring, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		const struct usage_sample sample = {.at_ms = 1000 + i, .cpu_ms = i};

		usage_ring_add(ring, &sample);
	}
}

/* Checks that the query selects the samples from `first` to `last`. */
static void expect(const struct usage_ring *ring, const struct usage_query *query, unsigned first,
		   unsigned last)
{
	unsigned n;
	struct usage_sample *found = usage_ring_select(ring, query, &n);

	assert_int_equal(n, last - first + 1);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(found[i].cpu_ms, first + i);
	free(found);
}

static void expect_none(const struct usage_ring *ring, const struct usage_query *query)
{
	unsigned n = 1;

	free(usage_ring_select(ring, query, &n));
	assert_int_equal(n, 0);
}

static void empty_ring_has_no_samples(void **state)
{
	struct usage_ring ring = {0};

	expect_none(&ring, &all);
	usage_ring_free(&ring);
}

static void samples_are_kept_in_order(void **state)
{
	struct usage_ring ring = {0};

	for (unsigned i = 0; i < USAGE_KEPT; i++) {
		add(&ring, i, i + 1);
		expect(&ring, &all, 0, i);
	}
	usage_ring_free(&ring);
}

static void full_ring_drops_the_oldest(void **state)
{
	struct usage_ring ring = {0};

	add(&ring, 0, USAGE_KEPT);
	for (unsigned i = USAGE_KEPT; i < 3 * USAGE_KEPT; i++) {
		add(&ring, i, i + 1);
		assert_int_equal(ring.n, USAGE_KEPT);
		expect(&ring, &all, i + 1 - USAGE_KEPT, i);
	}
	usage_ring_free(&ring);
}

/* A young sandbox needs little memory, and an old one no more than its hour. */
static void room_grows_with_the_samples(void **state)
{
	struct usage_ring ring = {0};

	assert_int_equal(ring.room, 0);
	add(&ring, 0, 1);
	assert_true(ring.room <= 8);
	add(&ring, 1, 5 * USAGE_KEPT);
	assert_int_equal(ring.room, USAGE_KEPT);
	usage_ring_free(&ring);
	assert_int_equal(ring.n, 0);
	add(&ring, 3, 4);
	expect(&ring, &all, 3, 3);
	usage_ring_free(&ring);
}

static void query_selects_by_time_and_number(void **state)
{
	struct usage_ring ring = {0};
	struct usage_query q = all;

	add(&ring, 0, 500); /* keeps 140 to 499, of the times 1140 to 1499 */
	q.since_ms = 1400;
	expect(&ring, &q, 400, 499);
	q.until_ms = 1450;
	expect(&ring, &q, 400, 450);
	q.most = 3;
	expect(&ring, &q, 448, 450);
	q.since_ms = 0;
	q.until_ms = 1141;
	expect(&ring, &q, 140, 141);
	q.until_ms = 1139;
	expect_none(&ring, &q);
	q = (struct usage_query){.since_ms = 1500, .most = 1};
	expect_none(&ring, &q);
	usage_ring_free(&ring);
}

static void cpu_is_a_share_of_all_vcpus(void **state)
{
	assert_int_equal(usage_cpu(0, 10000, 2), 0);
	assert_int_equal(usage_cpu(10, 10000, 1), 10);
	assert_int_equal(usage_cpu(10000, 10000, 2), 5000);
	assert_int_equal(usage_cpu(20000, 10000, 2), 10000);
	assert_int_equal(usage_cpu(1000, 999, 1), 10010); /* the readings are not simultaneous */
	assert_int_equal(usage_cpu(UINT64_MAX / 10000, 1, 1), USAGE_CPU_NONE - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cpu_is_a_share_of_all_vcpus),
		cmocka_unit_test(empty_ring_has_no_samples),
		cmocka_unit_test(samples_are_kept_in_order),
		cmocka_unit_test(full_ring_drops_the_oldest),
		cmocka_unit_test(room_grows_with_the_samples),
		cmocka_unit_test(query_selects_by_time_and_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
