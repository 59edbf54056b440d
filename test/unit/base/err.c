// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/err.h"

static void test_set_adds_the_errno_text(void **state)
{
	struct err e = {0};

	assert_int_equal(err_set(&e, ENOENT, "open %s", "x"), -ENOENT);
	assert_string_equal(e.text, "open x: No such file or directory");
	assert_int_equal(e.code, -ENOENT);
}

static void test_context_precedes_the_text(void **state)
{
	struct err e = {0};

	err_say(&e, EINVAL, "ram_mib must be at least 128");
	assert_int_equal(err_context(&e, "line %d", 3), -EINVAL);
	assert_string_equal(e.text, "line 3: ram_mib must be at least 128");
}

static void test_long_text_is_truncated(void **state)
{
	struct err e = {0};
	char longer[2 * ERR_TEXT_MAX];

	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	err_set(&e, EIO, "%s", longer);
	err_context(&e, "%s", longer);
	assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
}

static void test_null_error_object_is_accepted(void **state)
{
	assert_int_equal(err_set(NULL, EPERM, "x"), -EPERM);
	assert_int_equal(err_say(NULL, 0, "x"), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set_adds_the_errno_text),
		cmocka_unit_test(test_context_precedes_the_text),
		cmocka_unit_test(test_long_text_is_truncated),
		cmocka_unit_test(test_null_error_object_is_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
