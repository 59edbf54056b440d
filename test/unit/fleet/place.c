// SPDX-License-Identifier: Apache-2.0
/* Which host makes a sandbox: what a host knows, asks and sends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/fleet/place.h"

#define HOSTS 8
#define SELF  0
#define NOW   100000
#define NONE  UINT16_MAX

static struct place_peer peers[HOSTS];
static const uint16_t homes[] = {2, 3};

static struct place_load load(uint16_t used, uint8_t warm)
{
	return (struct place_load){.used = used, .warm = {warm}};
}

static struct place fleet(struct place_load own, struct place_load others)
{
	struct place p = {.peers = peers, .n = HOSTS, .self = SELF};

	for (uint32_t i = 0; i < HOSTS; i++)
		peers[i] = (struct place_peer){.number = i, .ready = true};
	for (uint16_t i = 1; i < HOSTS; i++)
		place_heard(&p, i, &others, NOW);
	peers[SELF].load = own;
	return p;
}

static struct place_create request(bool not_here)
{
	return (struct place_create){
		.homes = homes, .n_homes = ARRAY_LEN(homes), .not_here = not_here};
}

static bool is_home(uint16_t host)
{
	return host == homes[0] || host == homes[1];
}

static void own_warm_sandbox_is_taken(void **state)
{
	struct place p = fleet(load(500, 1), load(500, 2));
	struct place_create c = request(false);
	const struct place_next next = place_next(&p, &c, 1, NOW);

	assert_int_equal(next.step, PLACE_HERE);
	assert_int_equal(next.hosts[0], SELF);
}

static void host_far_above_the_mean_sends_away(void **state)
{
	struct place p = fleet(load(700, 1), load(500, 2));
	struct place_create c = request(false);

	assert_int_equal(place_next(&p, &c, 1, NOW).step, PLACE_SEND);
}

static void forbidden_here_it_goes_home(void **state)
{
	for (uint64_t random = 0; random < 50; random++) {
		struct place p = fleet(load(100, 2), load(500, 2));
		struct place_create c = request(true);
		const struct place_next next = place_next(&p, &c, random << 28, NOW);

		assert_int_equal(next.step, PLACE_SEND);
		assert_true(is_home(next.hosts[0]));
		assert_true(next.warm_only);
	}
}

static void better_of_two_homes_is_chosen(void **state)
{
	static const struct {
		struct place_load two, three;
		uint16_t want;
	} cases[] = {
		{{.used = 100, .warm = {0}}, {.used = 800, .warm = {1}}, 3},
		{{.used = 100, .warm = {1}}, {.used = 800, .warm = {2}}, 2},
		{{.used = 849, .warm = {1}}, {.used = 850, .warm = {2}}, 2},
		{{.used = 100, .warm = {1}, .closed = true}, {.used = 800, .warm = {1}}, 3},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct place p = fleet(load(500, 0), load(500, 0));
		struct place_create c = request(true);
		uint64_t random = 0;
		struct place_next next;

		place_heard(&p, 2, &cases[i].two, NOW);
		place_heard(&p, 3, &cases[i].three, NOW);
		do { /* until both were drawn */
			c = request(true);
			next = place_next(&p, &c, random += 0x1234567, NOW);
		} while (c.picks[0] == NONE || c.picks[1] == NONE || !is_home(c.picks[0]));
		assert_int_equal(next.step, PLACE_SEND);
		assert_int_equal(next.hosts[0], cases[i].want);
	}
}

static void old_loads_are_asked_for(void **state)
{
	struct place p = fleet(load(500, 0), load(500, 2));
	struct place_create c = request(true);
	struct place_next next = place_next(&p, &c, 1, NOW + PLACE_FRESH_MS);

	assert_int_equal(next.step, PLACE_ASK);
	for (int i = 0; i < PLACE_PICKS; i++)
		if (next.hosts[i] != NONE)
			place_silent(&p, next.hosts[i], NOW + PLACE_FRESH_MS);
	next = place_next(&p, &c, 1, NOW + PLACE_FRESH_MS);
	assert_true(next.step == PLACE_ASK && !is_home(next.hosts[0]));
}

/* Every host says no: the create ends, and no host is tried twice. */
static void gives_up_after_three_refusals(void **state)
{
	for (uint64_t random = 0; random < 200; random++) {
		struct place p = fleet(load(900, 0), load(500, 3));
		struct place_create c = request(true);
		uint32_t sent = 0, seen = 0;
		struct place_next next;

		while ((next = place_next(&p, &c, random * 0x9e3779b97f4a7c15, NOW)).step ==
		       PLACE_SEND) {
			assert_false(seen & 1u << next.hosts[0]);
			seen |= 1u << next.hosts[0];
			sent++;
			place_refused(&p, &c, next.hosts[0], PLACE_NO_SLOT, NOW);
		}
		assert_int_equal(next.step, PLACE_REFUSED);
		assert_true(sent >= 1 && sent <= PLACE_SENDS);
	}
}

static void last_turn_takes_a_host_without_warm_sandboxes(void **state)
{
	struct place p = fleet(load(900, 0), load(500, 0));
	struct place_create c = request(true);
	const struct place_next next = place_next(&p, &c, 1, NOW);

	assert_int_equal(next.step, PLACE_SEND);
	assert_false(next.warm_only);
	assert_true(is_home(next.hosts[0]));
}

/* Better a sandbox that is not warm than none: the third host may boot one. */
static void third_host_need_not_have_a_warm_one(void **state)
{
	struct place p = fleet(load(900, 0), load(500, 1));
	struct place_create c = request(true);

	for (uint32_t i = 0; i < PLACE_SENDS; i++) {
		const struct place_next next = place_next(&p, &c, i, NOW);

		assert_int_equal(next.step, PLACE_SEND);
		assert_int_equal(next.warm_only, i < PLACE_SENDS - 1);
		place_refused(&p, &c, next.hosts[0], PLACE_NO_WARM, NOW);
	}
}

static void own_host_makes_what_no_other_takes(void **state)
{
	for (uint64_t random = 0; random < 50; random++) {
		struct place p = fleet(load(700, 0), load(500, 1));
		struct place_create c = request(false);
		uint32_t sent = 0;
		struct place_next next;

		while ((next = place_next(&p, &c, random << 28, NOW)).step == PLACE_SEND) {
			place_refused(&p, &c, next.hosts[0], PLACE_NO_ROOM, NOW);
			sent++;
		}
		assert_int_equal(next.step, PLACE_HERE);
		assert_false(next.warm_only);
		assert_true(sent && sent <= PLACE_SENDS);
	}
}

/* A create that is confined to some hosts goes nowhere else, even if these have no room. */
static void confined_create_stays_in_its_hosts(void **state)
{
	static const uint16_t few[] = {2, SELF, 3, 4};

	for (uint64_t random = 0; random < 200; random++) {
		struct place p = fleet(load(900, 0), load(500, 1));
		struct place_create c = {
			.homes = few, .n_homes = ARRAY_LEN(few), .only_homes = true};
		struct place_next next;

		while ((next = place_next(&p, &c, random * 0x9e3779b97f4a7c15, NOW)).step ==
		       PLACE_SEND) {
			assert_in_range(next.hosts[0], 2, 4);
			place_refused(&p, &c, next.hosts[0], PLACE_NO_ROOM, NOW);
		}
		assert_int_equal(next.step, PLACE_REFUSED);
	}
}

static void unusable_hosts_are_never_chosen(void **state)
{
	for (uint64_t random = 0; random < 500; random++) {
		struct place p = fleet(load(900, 0), load(500, 1));
		struct place_create c = request(true);

		peers[1].ready = false;
		place_silent(&p, 2, NOW);
		peers[4].load.closed = true;
		peers[5].load.used = PLACE_CREATE_FULL;
		const struct place_next next = place_next(&p, &c, random * 0x9e3779b97f4a7c15, NOW);
		assert_int_equal(next.step, PLACE_SEND);
		assert_true(next.hosts[0] == 3 || next.hosts[0] > 5);
	}
}

static void host_alone_serves_itself(void **state)
{
	struct place p = {.peers = peers, .n = 1, .self = SELF};
	static const uint16_t home[] = {SELF};
	struct place_create c = {.homes = home, .n_homes = 1};

	peers[SELF] = (struct place_peer){.ready = true, .load = load(100, 0)};
	assert_int_equal(place_next(&p, &c, 7, NOW).step, PLACE_HERE);
	place_refused(&p, &c, SELF, PLACE_NO_ROOM, NOW);
	assert_int_equal(place_next(&p, &c, 7, NOW).step, PLACE_REFUSED);
}

/* --- homes ---------------------------------------------------------------------------------- */

static bool contains(const uint16_t *list, size_t n, uint16_t host)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == host)
			return true;
	return false;
}

/* A host that leaves takes no other home with it, and more homes begin with the same ones. */
static void homes_stay_when_a_host_leaves(void **state)
{
	static struct place_peer many[100];
	struct place p = {.peers = many, .n = 100};
	uint16_t all[10], fewer[5], rest[10];

	for (uint32_t i = 0; i < p.n; i++)
		many[i].number = i * 7;
	for (uint64_t tenant = 0; tenant < 200; tenant++) {
		place_homes(&p, tenant, all, 10);
		place_homes(&p, tenant, fewer, 5);
		assert_memory_equal(all, fewer, sizeof(fewer));
		p.n = 99; /* the last one is gone */
		place_homes(&p, tenant, rest, 10);
		p.n = 100;
		for (int i = 0; i < 10; i++)
			assert_true(all[i] == 99 || contains(rest, 10, all[i]));
	}
}

static void homes_are_spread_evenly(void **state)
{
	static struct place_peer many[50];
	struct place p = {.peers = many, .n = 50};
	uint32_t counts[50] = {0};
	uint16_t list[3];

	for (uint32_t i = 0; i < p.n; i++)
		many[i].number = i;
	for (uint64_t tenant = 0; tenant < 10000; tenant++) {
		place_homes(&p, tenant, list, 3);
		for (int i = 0; i < 3; i++)
			counts[list[i]]++;
	}
	for (int i = 0; i < 50; i++) /* 600 in the mean, deviation 24 */
		assert_in_range(counts[i], 450, 750);
}

static void number_of_homes_follows_the_limit(void **state)
{
	assert_int_equal(place_homes_wanted(10, 1000), 3);
	assert_int_equal(place_homes_wanted(500, 1000), 31);
	assert_int_equal(place_homes_wanted(1000000, 1000), 1000);
	assert_int_equal(place_homes_wanted(10, 2), 2);
}

/* --- what a host says of itself ------------------------------------------------------------- */

static void scarcest_resource_counts(void **state)
{
	struct place_room room = {.memory_used = 10,
				  .memory = 100,
				  .vms_used = 20,
				  .vms = 100,
				  .disk_used = 17,
				  .disk = 100};

	assert_int_equal(place_used(&room), 200); /* of 85 */
	room.vms_used = 50;
	assert_int_equal(place_used(&room), 500);
	room.memory_used = 101;
	assert_int_equal(place_used(&room), PLACE_FULL);
	assert_int_equal(place_used(&(struct place_room){0}), PLACE_FULL);
}

static void creates_leave_room_for_forks(void **state)
{
	const struct place_load full = load(PLACE_CREATE_FULL, 1);
	struct place_load ok = load(PLACE_CREATE_FULL - 1, 0);

	assert_int_equal(place_admit(&full, 0, false), PLACE_NO_ROOM);
	assert_int_equal(place_admit(&ok, 0, true), PLACE_NO_WARM);
	assert_int_equal(place_admit(&ok, 0, false), PLACE_OK);
	ok.closed = true;
	assert_int_equal(place_admit(&ok, 0, false), PLACE_IS_CLOSED);
}

static void host_that_fails_takes_itself_out(void **state)
{
	struct place_health health = {0};

	place_result(&health, false, NOW);
	place_result(&health, false, NOW);
	place_result(&health, true, NOW);
	for (int i = 0; i < PLACE_FAILURES - 1; i++)
		place_result(&health, false, NOW);
	assert_false(place_closed(&health, NOW));
	place_result(&health, false, NOW);
	assert_true(place_closed(&health, NOW + PLACE_RETRY_MS - 1));
	assert_false(place_closed(&health, NOW + PLACE_RETRY_MS));
	place_result(&health, false, NOW + PLACE_RETRY_MS);
	assert_true(place_closed(&health, NOW + 3 * PLACE_RETRY_MS - 1));
	place_result(&health, true, NOW + PLACE_RETRY_MS);
	assert_false(place_closed(&health, NOW + PLACE_RETRY_MS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_warm_sandbox_is_taken),
		cmocka_unit_test(host_far_above_the_mean_sends_away),
		cmocka_unit_test(forbidden_here_it_goes_home),
		cmocka_unit_test(better_of_two_homes_is_chosen),
		cmocka_unit_test(old_loads_are_asked_for),
		cmocka_unit_test(gives_up_after_three_refusals),
		cmocka_unit_test(last_turn_takes_a_host_without_warm_sandboxes),
		cmocka_unit_test(third_host_need_not_have_a_warm_one),
		cmocka_unit_test(own_host_makes_what_no_other_takes),
		cmocka_unit_test(confined_create_stays_in_its_hosts),
		cmocka_unit_test(unusable_hosts_are_never_chosen),
		cmocka_unit_test(host_alone_serves_itself),
		cmocka_unit_test(homes_stay_when_a_host_leaves),
		cmocka_unit_test(homes_are_spread_evenly),
		cmocka_unit_test(number_of_homes_follows_the_limit),
		cmocka_unit_test(scarcest_resource_counts),
		cmocka_unit_test(creates_leave_room_for_forks),
		cmocka_unit_test(host_that_fails_takes_itself_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
