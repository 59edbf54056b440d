// SPDX-License-Identifier: Apache-2.0
/* The records of allowances, and when their keeper may let them grow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/fleet/books.h"

#define NOW 1000000

static uint32_t grant(struct books *b, uint32_t host, uint64_t at, uint32_t held, uint32_t used,
		      uint32_t want, uint64_t now)
{
	const struct books_said said = {host, at, held, used, want};

	return books_grant(b, 10, true, &said, now);
}

static void note(struct books *b, uint32_t host, uint64_t at, uint32_t held, uint32_t used)
{
	const struct books_said said = {host, at, held, used, 0};

	books_note(b, &said, NOW);
}

/* --- records -------------------------------------------------------------------------------- */

static void sum_stays_within_the_limit(void **state)
{
	struct books b = {0};

	assert_int_equal(grant(&b, 1, 1, 0, 0, 6, NOW), 6);
	assert_int_equal(grant(&b, 2, 1, 0, 0, 6, NOW), 4);
	assert_int_equal(books_left(&b, 10, NOW), 0);
	assert_int_equal(grant(&b, 1, 2, 3, 3, 3, NOW), 3);
	assert_int_equal(books_left(&b, 10, NOW), 3);
	assert_int_equal(grant(&b, 2, 2, 4, 4, 9, NOW), 7);
	free(b.records);
}

static void record_lapses_unless_it_is_renewed(void **state)
{
	const uint64_t later = NOW + BOOKS_LEASE_MS - 1;
	struct books b = {0};

	grant(&b, 1, 1, 0, 0, 6, NOW);
	grant(&b, 2, 1, 0, 0, 4, NOW);
	grant(&b, 2, 2, 4, 0, 4, later);
	assert_int_equal(grant(&b, 3, 1, 0, 0, 9, later), 0);
	assert_int_equal(grant(&b, 3, 2, 0, 0, 9, later + 1), 6);
	books_tidy(&b, later + 1);
	assert_int_equal(b.n, 2);
	free(b.records);
}

static void what_runs_is_recorded_whatever_the_limit_is(void **state)
{
	struct books b = {0};

	assert_int_equal(grant(&b, 1, 1, 0, 12, 13, NOW), 10);
	assert_int_equal(b.records[0].record, 12);
	assert_int_equal(grant(&b, 2, 1, 0, 0, 1, NOW), 0);
	assert_int_equal(books_left(&b, 10, NOW), 0);
	note(&b, 2, 2, UINT32_MAX, UINT32_MAX); /* a host that lies only takes from others */
	assert_int_equal(grant(&b, 1, 2, 10, 9, 10, NOW), 10);
	assert_int_equal(grant(&b, 3, 1, 0, 0, 1, NOW), 0);
	free(b.records);
}

static void older_message_changes_nothing(void **state)
{
	struct books b = {0};

	assert_int_equal(grant(&b, 1, 5, 0, 0, 6, NOW), 6);
	note(&b, 1, 4, 0, 0);
	assert_int_equal(books_left(&b, 10, NOW), 4);
	assert_int_equal(grant(&b, 1, 4, 0, 0, 1, NOW), 0);
	note(&b, 1, 6, 2, 1);
	assert_int_equal(books_left(&b, 10, NOW), 8);
	free(b.records);
}

static void keeper_that_is_not_sure_grants_nothing_new(void **state)
{
	const struct books_said raise = {1, 1, 3, 2, 5}, lower = {1, 2, 1, 1, 1};
	struct books b = {0};

	assert_int_equal(books_grant(&b, 10, false, &raise, NOW), 3);
	assert_int_equal(books_grant(&b, 10, false, &lower, NOW), 1);
	free(b.records);
}

static void hosts_with_most_to_spare_are_found(void **state)
{
	uint32_t hosts[SLOTS_YIELD_HOSTS];
	struct books b = {0};

	assert_int_equal(books_spare(&b, 1, NOW, hosts), 0);
	for (uint32_t i = 1; i <= 7; i++)
		note(&b, i, 1, 10 * i, i == 6 ? 60 : 9 * i);
	note(&b, 8, 1, 0, 0);
	assert_int_equal(books_spare(&b, 7, NOW, hosts), 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(hosts[i], 5 - i);
	assert_int_equal(books_spare(&b, 7, NOW + BOOKS_LEASE_MS, hosts), 0);
	free(b.records);
}

/* --- keepers -------------------------------------------------------------------------------- */

static void keepers_are_the_hosts_with_the_lowest_numbers(void **state)
{
	struct place_peer peers[12] = {0};
	struct place hosts = {.peers = peers, .n = 12};
	bool seen[12] = {false};
	uint32_t n = 0;

	for (uint32_t i = 0; i < 12; i++)
		peers[i].number = 100 + i;
	const uint64_t keepers = books_keepers(&hosts);
	for (uint64_t tenant = 0; tenant < 1000; tenant++)
		seen[books_keeper(&hosts, tenant * 0x9e3779b97f4a7c15u)] = true;
	for (uint32_t i = 0; i < 12; i++)
		n += seen[i];
	assert_int_equal(n, BOOKS_KEEPERS);
	assert_true(seen[0] && seen[BOOKS_KEEPERS - 1]);
	peers[BOOKS_KEEPERS].number++;
	assert_true(books_keepers(&hosts) == keepers);
	peers[BOOKS_KEEPERS - 1].number++;
	assert_false(books_keepers(&hosts) == keepers);
	hosts.n = 1;
	assert_int_equal(books_keeper(&hosts, 5), 0);
}

static void records_grow_once_all_have_reported(void **state)
{
	struct books_peer peers[3] = {{1, false, 0, 0}, {2, false, 0, 0}, {3, false, 0, 0}};
	struct books_trust t = {.peers = peers, .n = 3};

	books_begin(&t, false, NOW);
	assert_false(books_sure(&t, NOW));
	peers[1] = (struct books_peer){2, true, NOW, 0};
	assert_true(books_agreed(&t, NOW)); /* two of three */
	assert_false(books_sure(&t, NOW));
	peers[2] = (struct books_peer){3, true, NOW, 0};
	assert_true(books_sure(&t, NOW));
	assert_false(books_sure(&t, NOW + BOOKS_AGREE_MS)); /* nobody agreed since */
	peers[1].agreed_ms = NOW + BOOKS_AGREE_MS;
	assert_true(books_sure(&t, NOW + BOOKS_AGREE_MS));
}

static void records_grow_when_all_leases_have_ended(void **state)
{
	struct books_peer peers[3] = {{1, false, 0, 0}, {2, true, NOW, 0}, {3, false, 0, 0}};
	struct books_trust t = {.peers = peers, .n = 3, .begun_ms = NOW};

	peers[1].agreed_ms = NOW + BOOKS_LEASE_MS;
	assert_false(books_sure(&t, NOW + BOOKS_LEASE_MS - 1));
	assert_true(books_sure(&t, NOW + BOOKS_LEASE_MS));
}

static void new_keepers_wait_for_the_old_ones_to_notice(void **state)
{
	struct books_peer peers[2] = {{1, true, NOW, 0}, {2, true, NOW, 0}};
	struct books_trust t = {.peers = peers, .n = 2};

	assert_true(books_sure(&t, NOW));
	books_begin(&t, true, NOW);
	assert_false(books_agreed(&t, NOW));
	peers[1] = (struct books_peer){2, true, NOW + BOOKS_AGREE_MS, 0};
	assert_false(books_sure(&t, NOW + BOOKS_AGREE_MS - 1));
	assert_true(books_sure(&t, NOW + BOOKS_AGREE_MS));
}

static void host_alone_is_sure(void **state)
{
	struct books_peer self = {1, false, 0, 0};
	struct books_trust t = {.peers = &self, .n = 1};

	assert_true(books_sure(&t, NOW));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sum_stays_within_the_limit),
		cmocka_unit_test(record_lapses_unless_it_is_renewed),
		cmocka_unit_test(what_runs_is_recorded_whatever_the_limit_is),
		cmocka_unit_test(older_message_changes_nothing),
		cmocka_unit_test(keeper_that_is_not_sure_grants_nothing_new),
		cmocka_unit_test(hosts_with_most_to_spare_are_found),
		cmocka_unit_test(keepers_are_the_hosts_with_the_lowest_numbers),
		cmocka_unit_test(records_grow_once_all_have_reported),
		cmocka_unit_test(records_grow_when_all_leases_have_ended),
		cmocka_unit_test(new_keepers_wait_for_the_old_ones_to_notice),
		cmocka_unit_test(host_alone_is_sure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
