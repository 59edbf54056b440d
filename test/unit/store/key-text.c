// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "orchestrator/store/key-text.h"

static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static void new_key_is_valid(void **state)
{
	char key[KEY_TEXT_LEN + 1], other[KEY_TEXT_LEN + 1];

	key_text_make(key);
	key_text_make(other);
	assert_int_equal(strlen(key), KEY_TEXT_LEN);
	assert_memory_equal(key, "rmt_", 4);
	assert_int_equal(strspn(key + 4, alphabet), KEY_TEXT_LEN - 4);
	assert_true(key_text_is_whole(key, KEY_TEXT_LEN));
	assert_string_not_equal(key, other);
}

/* Other programs store keys, so their form must not change. */
static void check_digits_do_not_change_between_versions(void **state)
{
	static const char good[] = "rmt_nlcIvHSi1rqImbStDqXSAiyfQimglwaa1cUBDx";

	assert_true(key_text_is_whole(good, KEY_TEXT_LEN));
}

static void every_mistyped_character_is_detected(void **state)
{
	char key[KEY_TEXT_LEN + 1], typo[KEY_TEXT_LEN + 1];

	for (int round = 0; round < 20; round++) {
		key_text_make(key);
		for (size_t at = 0; at < KEY_TEXT_LEN; at++)
			for (int byte = 0; byte < 256; byte++) {
				memcpy(typo, key, sizeof(key));
				typo[at] = (char)byte;
				if (key_text_is_whole(typo, KEY_TEXT_LEN) != (typo[at] == key[at]))
					fail_msg("%s with byte %d at offset %zu: wrong result", key,
						 byte, at);
			}
	}
}

static void swapped_characters_are_detected(void **state)
{
	char key[KEY_TEXT_LEN + 1];

	for (int round = 0; round < 100; round++) {
		key_text_make(key);
		for (size_t at = 0; at + 1 < KEY_TEXT_LEN; at++) {
			char a = key[at], b = key[at + 1];

			key[at] = b;
			key[at + 1] = a;
			assert_int_equal(key_text_is_whole(key, KEY_TEXT_LEN), a == b);
			key[at] = a;
			key[at + 1] = b;
		}
	}
}

static void other_lengths_are_refused(void **state)
{
	char key[KEY_TEXT_LEN + 2] = {0};

	key_text_make(key);
	for (size_t len = 0; len < KEY_TEXT_LEN; len++)
		assert_false(key_text_is_whole(key, len));
	key[KEY_TEXT_LEN] = '0';
	assert_false(key_text_is_whole(key, KEY_TEXT_LEN + 1));
}

/* The test vector "abc" of FIPS 180-2. */
static void hash_is_sha_256(void **state)
{
	static const uint8_t abc[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
				      0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
				      0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c,
				      0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
	uint8_t hash[KEY_HASH_LEN];

	key_text_hash("abc", 3, hash);
	assert_memory_equal(hash, abc, sizeof(abc));
}

/* All digits are about equally frequent in the random part: 62 digits, 64,000 drawn. */
static void digits_are_drawn_evenly(void **state)
{
	unsigned count[256] = {0};
	char key[KEY_TEXT_LEN + 1];

	for (int round = 0; round < 2000; round++) {
		key_text_make(key);
		for (size_t at = 4; at < 36; at++)
			count[(uint8_t)key[at]]++;
	}
	for (const char *p = alphabet; *p; p++) /* 1,032 expected; this is 9 standard deviations */
		assert_in_range(count[(uint8_t)*p], 740, 1330);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new_key_is_valid),
		cmocka_unit_test(check_digits_do_not_change_between_versions),
		cmocka_unit_test(every_mistyped_character_is_detected),
		cmocka_unit_test(swapped_characters_are_detected),
		cmocka_unit_test(other_lengths_are_refused),
		cmocka_unit_test(hash_is_sha_256),
		cmocka_unit_test(digits_are_drawn_evenly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
