// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/http/trace.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static bool parse(struct trace_parent *out, const char *text)
{
	return trace_parse(out, text, strlen(text));
}

static void test_valid_values(void **state)
{
	struct trace_parent p;

	assert_true(parse(&p, "00-" TRACE "-" SPAN "-01"));
	assert_memory_equal(p.trace,
			    "\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36", 16);
	assert_memory_equal(p.span, "\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8);
	assert_true(p.sampled);
	assert_true(parse(&p, "00-" TRACE "-" SPAN "-fe"));
	assert_false(p.sampled);
}

static void test_a_later_version_may_continue(void **state)
{
	struct trace_parent p;

	assert_true(parse(&p, "01-" TRACE "-" SPAN "-03"));
	assert_true(p.sampled);
	assert_true(parse(&p, "cc-" TRACE "-" SPAN "-00-what the future will be like"));
	assert_false(p.sampled);
	assert_false(parse(&p, "cc-" TRACE "-" SPAN "-00.what"));
}

static void test_invalid_values(void **state)
{
	static const char *const values[] = {
		"",
		"00-" TRACE "-" SPAN "-0",
		"00-" TRACE "-" SPAN "-01-",
		"00-" TRACE "-" SPAN "-01 ",
		"ff-" TRACE "-" SPAN "-01",
		"ff-" TRACE "-" SPAN "-01-x",
		"0x-" TRACE "-" SPAN "-01",
		"0F-" TRACE "-" SPAN "-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
		"00-" TRACE "-00F067AA0BA902B7-01",
		"00-" TRACE "-" SPAN "-0g",
		"00_" TRACE "-" SPAN "-01",
		"00-" TRACE "_" SPAN "-01",
		"00-" TRACE "-" SPAN "_01",
		"00-00000000000000000000000000000000-" SPAN "-01",
		"00-" TRACE "-0000000000000000-01",
	};
	struct trace_parent p;

	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		if (parse(&p, values[i]))
			fail_msg("accepted: %s", values[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_valid_values),
		cmocka_unit_test(test_a_later_version_may_continue),
		cmocka_unit_test(test_invalid_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
