// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>

#include "base/version.h"

static void test_versions_of_the_range_are_accepted(void **state)
{
	for (uint32_t version = 3; version <= 5; version++)
		assert_int_equal(version_check("the file", version, 3, 5, NULL), 0);
}

static void test_version_outside_of_the_range_is_refused_in_words(void **state)
{
	struct err e;

	assert_int_equal(version_check("the file", 6, 3, 5, &e), -ENOTSUP);
	assert_string_equal(e.text,
			    "the file has version 6, of a newer Ramet; this one supports 3 to 5");
	assert_int_equal(version_check("the file", 2, 3, 5, &e), -ENOTSUP);
	assert_string_equal(e.text,
			    "the file has version 2, of an older Ramet; this one supports 3 to 5");
	assert_int_equal(version_check("the file", 0, 1, 1, &e), -ENOTSUP);
	assert_string_equal(e.text,
			    "the file has version 0, of an older Ramet; this one supports only 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions_of_the_range_are_accepted),
		cmocka_unit_test(test_version_outside_of_the_range_is_refused_in_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
