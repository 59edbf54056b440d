// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "base/report.h"

static void test_lines_are_appended(void **state)
{
	char buffer[64];
	struct report r = report_on(buffer, sizeof(buffer));

	assert_string_equal(r.text, "");
	report_add(&r, "%s %d\n", "one", 1);
	report_add(&r, "two\n");
	assert_string_equal(r.text, "one 1\ntwo\n");
	assert_int_equal(r.len, strlen(r.text));
	assert_false(r.cut);
}

/* Adds texts of each length around the size of the buffer, with either function. */
static void test_text_that_does_not_fit_is_cut(void **state)
{
	char longer[256], buffer[64 + 1];

	for (size_t len = 40; len < 200; len++) {
		for (int foreign = 0; foreign < 2; foreign++) {
			struct report r = report_on(buffer, 64);

			memset(longer, 'a', sizeof(longer));
			longer[len] = '\0';
			buffer[64] = 'x';
			report_add(&r, "begin ");
			if (foreign)
				report_add_foreign(&r, longer, sizeof(longer));
			else
				report_add(&r, "%s", longer);
			assert_int_equal(r.cut, len + 6 > 63);
			assert_int_equal(strlen(r.text), r.cut ? 63 : len + 6);
			assert_int_equal(r.len, strlen(r.text));
			assert_int_equal(strstr(r.text, "\n(cut off here)\n") != NULL, r.cut);
			report_add(&r, "%.*s", r.cut ? 5 : 0, "more");
			assert_null(strstr(r.text, "more"));
			assert_int_equal(buffer[64], 'x');
		}
	}
}

static void test_foreign_bytes_are_made_printable(void **state)
{
	char buffer[64];
	struct report r = report_on(buffer, sizeof(buffer));

	report_add_foreign(&r, "a\x1b[31m\tb\r\n\x7f\x80\xffz", 16);
	assert_string_equal(r.text, "a?[31m?b?\n???z");
	report_add_foreign(&r, "12345", 2);
	report_add_foreign(&r, "3\0hidden", 9);
	assert_string_equal(r.text, "a?[31m?b?\n???z123");
}

static void test_line_is_made_printable(void **state)
{
	char line[] = "a\x1b]0;b\r\n\x7f\xc2\x9b~";

	report_clean(line);
	assert_string_equal(line, "a?]0;b?????~");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_are_appended),
		cmocka_unit_test(test_text_that_does_not_fit_is_cut),
		cmocka_unit_test(test_foreign_bytes_are_made_printable),
		cmocka_unit_test(test_line_is_made_printable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
