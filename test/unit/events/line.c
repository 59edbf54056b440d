// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "orchestrator/events/line.h"

#define ID "evt_0123456789abcdef0123456789abcdef"

static const struct audit_event frozen = {
	.name = "sandbox.frozen",
	.at_ms = 1795298467007,
	.tenant = "local",
	.sandbox = "sbx_1",
	.template = "default",
	.space = "spc_1",
};

static void line_contains_all_fields(void **state)
{
	char line[AUDIT_LINE_MAX];
	size_t len = audit_line_make(line, 42, ID, &frozen);

	line[len] = 0;
	assert_string_equal(line,
			    "{\"n\":42,\"id\":\"" ID "\",\"time\":\"2026-11-21T22:01:07.007Z\","
			    "\"event\":\"sandbox.frozen\",\"tenant\":\"local\","
			    "\"sandbox\":\"sbx_1\",\"template\":\"default\","
			    "\"space\":\"spc_1\"}\n");
}

static void line_is_read_back(void **state)
{
	char line[AUDIT_LINE_MAX];
	struct audit_line head;
	size_t len = audit_line_make(line, 42, ID, &frozen);

	assert_true(audit_line_parse(&head, line, len - 1));
	assert_int_equal(head.n, 42);
	assert_string_equal(head.id, ID);
	assert_string_equal(head.name, "sandbox.frozen");
	assert_int_equal(head.at_ms, frozen.at_ms);
	/* A kill may truncate a line anywhere; no part of it may be accepted. */
	for (size_t part = 0; part < len - 1; part++)
		assert_false(audit_line_parse(&head, line, part));
}

static void invalid_lines_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"{}",
		"[]",
		"{\"n\":,\"id\":\"" ID "\",\"time\":\"2026-11-21T22:01:07.007Z\",\"event\":\"a\"}",
		"{\"n\":12345678901234567890,\"id\":\"" ID
		"\",\"time\":\"2026-11-21T22:01:07.007Z\",\"event\":\"a\"}",
		"{\"n\":1,\"id\":\"evt_x\",\"time\":\"2026-11-21T22:01:07.007Z\",\"event\":\"a\"}",
		"{\"n\":1,\"id\":\"" ID "\",\"time\":\"2026-11-21 22:01:07.007Z\",\"event\":\"a\"}",
		"{\"n\":1,\"id\":\"" ID "\",\"time\":\"2026-11-21T22:01:07.007Z\",\"event\":\"\"}",
		"{\"n\":1,\"id\":\"" ID "\",\"time\":\"2026-11-21T22:01:07.007Z\",\"event\":\"A\"}",
		"{\"n\":1,\"id\":\"" ID
		"\",\"time\":\"2026-11-21T22:01:07.007Z\",\"event\":\"a\"x}",
	};
	struct audit_line head;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(audit_line_parse(&head, bad[i], strlen(bad[i])));
}

static void texts_are_escaped(void **state)
{
	struct audit_event died = frozen;
	char line[AUDIT_LINE_MAX];

	died.text = "say \"no\" \\ \n\x1b[2J \xff \xc2\x9b \xe2\x80\xa8 gr\xc3\xbc\xc3\x9f";
	size_t len = audit_line_make(line, 1, ID, &died);
	line[len] = 0;
	assert_non_null(
		strstr(line, "\"text\":\"say \\\"no\\\" \\\\ ??[2J ? ? ? gr\xc3\xbc\xc3\x9f\"}\n"));
	assert_ptr_equal(strchr(line, '\n'), line + len - 1);
}

static void field_that_does_not_fit_is_left_out(void **state)
{
	struct audit_event died = frozen;
	char line[AUDIT_LINE_MAX], text[2 * AUDIT_LINE_MAX];
	struct audit_line head;

	memset(text, '"', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	died.parent = text;
	died.text = "x";
	size_t len = audit_line_make(line, 1, ID, &died);
	assert_in_range(len, 1, AUDIT_LINE_MAX);
	assert_true(audit_line_parse(&head, line, len - 1));
	assert_memory_equal(line + len - 29, ",\"space\":\"spc_1\",\"text\":\"x\"}\n", 29);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(line_contains_all_fields),
		cmocka_unit_test(line_is_read_back),
		cmocka_unit_test(invalid_lines_are_refused),
		cmocka_unit_test(texts_are_escaped),
		cmocka_unit_test(field_that_does_not_fit_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
