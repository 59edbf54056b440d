// SPDX-License-Identifier: Apache-2.0
/* Ids fill the array that they are written to, and are unique. */
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_id_is_a_prefix_and_hex_digits(void **state)
{
	char id[21];

	memset(id, 'x', sizeof(id));
	random_id(id, sizeof(id), "key_");
	assert_int_equal(strlen(id), 20);
	assert_memory_equal(id, "key_", 4);
	assert_int_equal(strspn(id + 4, "0123456789abcdef"), 16);
}

static void test_ids_are_unique(void **state)
{
	char ids[64][37];

	for (int i = 0; i < 64; i++) {
		random_id(ids[i], sizeof(ids[i]), "sbx_");
		for (int j = 0; j < i; j++)
			assert_string_not_equal(ids[i], ids[j]);
	}
}

static void test_only_whole_ids_are_valid(void **state)
{
	char id[37];

	random_id(id, sizeof(id), "sbx_");
	assert_true(id_valid("sbx_", id, 36));
	assert_false(id_valid("spc_", id, 36));
	assert_false(id_valid("sbx_", id, 35));
	for (int i = 4; i < 36; i++) {
		char was = id[i];

		id[i] = 'A';
		assert_false(id_valid("sbx_", id, 36));
		id[i] = was;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_id_is_a_prefix_and_hex_digits),
		cmocka_unit_test(test_ids_are_unique),
		cmocka_unit_test(test_only_whole_ids_are_valid),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
