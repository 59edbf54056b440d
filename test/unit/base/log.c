// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

/* Returns the line's text, without date, level and role. */
static const char *rendered(const char *text)
{
	static char line[LOG_LINE_MAX + 1];
	size_t len = log_render(line, LOG_LINE_MAX, LOG_INFO, "%s", text);

	line[len] = 0;
	return strstr(line, "ramet: ") + 7;
}

static void test_control_characters_are_replaced(void **state)
{
	assert_string_equal(rendered("a\nb\x1b[2J\x7f"), "a?b?[2J?\n");
	/* U+009B, which has the same effect as ESC [, and the last byte of its encoding alone. */
	assert_string_equal(rendered("a\xc2\x9b"
				     "2J \x9b"),
			    "a\xc2?2J ?\n");
}

static void test_non_ascii_letters_are_kept(void **state)
{
	/* U+00E4, U+00DB, U+201B, U+1F41B */
	static const char text[] = "\xc3\xa4 \xc3\x9b \xe2\x80\x9b \xf0\x9f\x90\x9b\n";
	char plain[sizeof(text)];

	memcpy(plain, text, sizeof(text));
	plain[sizeof(text) - 2] = 0;
	assert_string_equal(rendered(plain), text);
}

static void test_json_line_is_escaped_and_truncated(void **state)
{
	char line[LOG_LINE_MAX + 1], text[2 * LOG_LINE_MAX];

	log_set_json(true);
	size_t len = log_render(line, LOG_LINE_MAX, LOG_WARN, "say \"%s\"\n", "a\\b\xc3\xa4\xff");
	line[len] = 0;
	assert_string_equal(line + 35, "\"level\":\"warn\",\"role\":\"ramet\",\"text\":\"say "
				       "\\\"a\\\\b\xc3\xa4?\\\"?\"}\n");
	assert_memory_equal(line, "{\"time\":\"20", 11);
	/* A line that is too long is cut inside its quotes. */
	memset(text, '"', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	len = log_render(line, LOG_LINE_MAX, LOG_WARN, "%s", text);
	assert_in_range(len, LOG_LINE_MAX - 16, LOG_LINE_MAX);
	assert_memory_equal(line + len - 5, "\\\"\"}\n", 5);
	log_set_json(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_control_characters_are_replaced),
		cmocka_unit_test(test_non_ascii_letters_are_kept),
		cmocka_unit_test(test_json_line_is_escaped_and_truncated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
