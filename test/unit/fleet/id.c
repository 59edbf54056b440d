// SPDX-License-Identifier: Apache-2.0
/* Ids that say where they were made: to hosts with the key, and to nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/random.h"
#include "orchestrator/fleet/id.h"

#define KEY_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
/* Computed by another program from KEY_A, cell 3 and host 17. */
#define KNOWN_ID "sbx_00112233445566778899aa9f6d6e5e18"
#define KEY_B	 "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

static struct fleet_keys keys_of(const char *text)
{
	struct fleet_keys keys;
	struct err e = {0};

	assert_int_equal(fleet_keys_read(&keys, text, strlen(text), &e), 0);
	return keys;
}

static void make(const struct fleet_keys *keys, uint32_t cell, uint32_t host, uint8_t id[16])
{
	random_bytes(id, FLEET_ID_BYTES);
	fleet_id_hide(keys, (struct fleet_place){cell, host}, id);
}

static void places_are_found_again(void **state)
{
	static const uint32_t cells[] = {0, 1, 3, 0x800, FLEET_CELL_MAX};
	static const uint32_t hosts[] = {0, 1, 17, 0x10000, 0xabcde, FLEET_NUMBER_MAX};
	const struct fleet_keys keys = keys_of(KEY_A);

	for (size_t i = 0; i < ARRAY_LEN(cells); i++)
		for (size_t j = 0; j < ARRAY_LEN(hosts); j++) {
			struct fleet_place at;
			uint8_t id[FLEET_ID_BYTES];

			make(&keys, cells[i], hosts[j], id);
			assert_true(fleet_id_find(&keys, id, &at));
			assert_int_equal(at.cell, cells[i]);
			assert_int_equal(at.host, hosts[j]);
		}
}

/* Other hosts of a fleet, and later versions, must read it. */
static void known_id_is_read(void **state)
{
	static const char id[] = "sbx_00112233445566778899aa0000000000";
	const struct fleet_keys keys = keys_of(KEY_A);
	uint8_t bytes[FLEET_ID_BYTES] = {0,    0x11, 0x22, 0x33, 0x44, 0x55,
					 0x66, 0x77, 0x88, 0x99, 0xaa};
	char text[FLEET_ID_TEXT + 1] = "sbx_";
	struct fleet_place at;

	fleet_id_hide(&keys, (struct fleet_place){3, 17}, bytes);
	for (size_t i = 0; i < sizeof(bytes); i++)
		sprintf(text + 4 + 2 * i, "%02x", bytes[i]);
	assert_string_equal(text, KNOWN_ID);
	assert_true(fleet_id_find_text(&keys, text, strlen(text), &at));
	assert_int_equal(at.cell, 3);
	assert_int_equal(at.host, 17);
	assert_false(fleet_id_find_text(&keys, id, strlen(id), &at));
	text[10] = 'x';
	assert_false(fleet_id_find_text(&keys, text, strlen(text), &at));
}

static void second_key_is_tried(void **state)
{
	const struct fleet_keys before = keys_of(KEY_A "\n"),
				during = keys_of(KEY_B "\r\n" KEY_A "\n"), after = keys_of(KEY_B);
	unsigned found = 0;

	assert_int_equal(during.n, 2);
	for (int i = 0; i < 1000; i++) {
		struct fleet_place at = {0};
		uint8_t id[FLEET_ID_BYTES];

		make(&before, 3, 17, id);
		assert_true(fleet_id_find(&during, id, &at));
		found += at.cell == 3 && at.host == 17; /* one in 256 passes for the first key */
		make(&during, 3, 17, id);
		assert_true(fleet_id_find(&after, id, &at));
	}
	assert_in_range(found, 950, 1000);
}

/* Returns how many of 4,096 ids pass. */
static unsigned passing(const struct fleet_keys *keys, bool flipped)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 4096; i++) {
		uint8_t id[FLEET_ID_BYTES];
		struct fleet_place at;

		make(keys, 3, 17, id);
		if (flipped)
			id[11 + i % 4] ^= (uint8_t)(1u << i / 4 % 8); /* another host, or cell */
		else
			random_bytes(id, sizeof(id));
		n += fleet_id_find(keys, id, &at);
	}
	return n;
}

/* 16 are expected; 64 would be 12 standard deviations away. */
static void foreign_and_changed_ids_rarely_pass(void **state)
{
	const struct fleet_keys keys = keys_of(KEY_A);

	assert_in_range(passing(&keys, false), 0, 64);
	assert_in_range(passing(&keys, true), 0, 64);
}

/* All bits of the ids of one host vary alike: 2,048 of 4,096 each, give or take 8 deviations. */
static void ids_of_a_host_look_random(void **state)
{
	const struct fleet_keys keys = keys_of(KEY_A);
	unsigned ones[8 * FLEET_ID_BYTES] = {0};

	for (int i = 0; i < 4096; i++) {
		uint8_t id[FLEET_ID_BYTES];

		make(&keys, 0, 0, id);
		for (unsigned bit = 0; bit < ARRAY_LEN(ones); bit++)
			ones[bit] += id[bit / 8] >> bit % 8 & 1;
	}
	for (unsigned bit = 0; bit < ARRAY_LEN(ones); bit++)
		assert_in_range(ones[bit], 2048 - 256, 2048 + 256);
}

static void bad_keys_are_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"", "no key"},
		{"\n\n", "no key"},
		{"00", "line 1 is not a key"},
		{KEY_A "0", "line 1 is not a key"},
		{KEY_A "\n0x" KEY_B, "line 2 is not a key"},
		{KEY_A "\n" KEY_B "\n" KEY_A, "more than 2 keys"},
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct fleet_keys keys;
		struct err e = {0};

		assert_true(fleet_keys_read(&keys, bad[i].text, strlen(bad[i].text), &e) < 0);
		assert_non_null(strstr(e.text, bad[i].why));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_are_found_again),
		cmocka_unit_test(known_id_is_read),
		cmocka_unit_test(second_key_is_tried),
		cmocka_unit_test(foreign_and_changed_ids_rarely_pass),
		cmocka_unit_test(ids_of_a_host_look_random),
		cmocka_unit_test(bad_keys_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
