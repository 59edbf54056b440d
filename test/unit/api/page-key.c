// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdint.h>
#include <string.h>

#include "orchestrator/api/page-key.h"

static const struct fleet_keys keys = {.n = 1, .key = {{1}}}, others = {.n = 1, .key = {{2}}};
static const struct fleet_place host = {.cell = 3, .host = 17};
static const struct list_position somewhere = {
	.at_ms = 1700000000123,
	.id = "spc_00112233445566778899aabbccddeeff",
};

static void position_is_read_again(void **state)
{
	const struct list_position first = {0};
	uint8_t key[PAGE_KEY_LEN], nothing[PAGE_KEY_LEN] = {0};
	struct list_position at;

	page_key_write(key, &somewhere);
	page_key_read(&at, LIST_SPACES, key);
	assert_int_equal(at.at_ms, somewhere.at_ms);
	assert_string_equal(at.id, somewhere.id);
	page_key_write(key, &first);
	assert_memory_equal(key, nothing, sizeof(key));
}

static void host_is_found_with_the_key_of_the_fleet(void **state)
{
	uint8_t key[FLEET_PAGE_KEY_LEN];
	struct fleet_place place;
	struct list_position at;
	int found = 0;

	for (int i = 0; i < 100; i++) {
		fleet_page_key_write(key, &keys, host, &somewhere);
		assert_true(fleet_page_key_read(&place, &at, LIST_SPACES, &keys, key));
		assert_int_equal(place.cell, host.cell);
		assert_int_equal(place.host, host.host);
		assert_string_equal(at.id, somewhere.id);
		found += fleet_page_key_read(&place, &at, LIST_SPACES, &others, key);
		key[i % FLEET_ID_BYTES] ^= 1;
		found += fleet_page_key_read(&place, &at, LIST_SPACES, &keys, key);
	}
	assert_in_range(found, 0, 20); /* one in 256 passes */
}

static void keys_of_one_host_differ(void **state)
{
	uint8_t one[FLEET_PAGE_KEY_LEN], other[FLEET_PAGE_KEY_LEN];

	fleet_page_key_write(one, &keys, host, &somewhere);
	fleet_page_key_write(other, &keys, host, &somewhere);
	assert_memory_not_equal(one, other, FLEET_ID_BYTES);
}

static void events_are_found_again(void **state)
{
	static const struct event_position there = {1700000000123, 77},
					   odd[] = {{-1, 0}, {INT64_MAX, 0}, {0, UINT64_MAX}};
	uint8_t key[FLEET_EVENT_KEY_LEN];
	struct fleet_place place;
	struct event_position at;

	fleet_event_key_write(key, &keys, host, &there);
	assert_true(fleet_event_key_read(&place, &at, &keys, key));
	assert_int_equal(place.host, host.host);
	assert_int_equal(at.at_ms, there.at_ms);
	assert_int_equal(at.n, there.n);
	for (size_t i = 0; i < 3; i++) {
		event_key_write(key, &odd[i]);
		assert_false(event_key_read(&at, key));
	}
}

static void each_list_has_its_own_letter(void **state)
{
	char seen[11] = {EVENT_LETTER, EVENT_FLEET_LETTER};

	for (int kind = LIST_SANDBOXES; kind <= LIST_CHECKPOINTS; kind++)
		for (int fleet = 0; fleet < 2; fleet++) {
			const char letter = page_letter((enum list_kind)kind, fleet);

			assert_null(strchr(seen, letter));
			seen[strlen(seen)] = letter;
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(position_is_read_again),
		cmocka_unit_test(host_is_found_with_the_key_of_the_fleet),
		cmocka_unit_test(keys_of_one_host_differ),
		cmocka_unit_test(events_are_found_again),
		cmocka_unit_test(each_list_has_its_own_letter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
