// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "orchestrator/json/cursor.h"

static const uint8_t key[] = {0, 1, 0x7f, 0x80, 0xff};

static void refuse(const char *text, const char *says)
{
	uint8_t out[CURSOR_KEY_MAX];
	struct err e = {0};

	assert_int_equal(cursor_read(text, 's', out, sizeof(out), &e), -EINVAL);
	if (!strstr(e.text, says))
		fail_msg("\"%s\" does not say \"%s\"", e.text, says);
}

static void written_cursor_is_read(void **state)
{
	char text[CURSOR_TEXT_MAX + 1];
	uint8_t out[CURSOR_KEY_MAX], longest[CURSOR_KEY_MAX] = {5};
	struct err e;

	cursor_write(text, 's', key, sizeof(key));
	assert_int_equal(cursor_read(text, 's', out, sizeof(out), &e), sizeof(key));
	assert_memory_equal(out, key, sizeof(key));
	cursor_write(text, 's', longest, sizeof(longest));
	assert_int_equal(strlen(text), CURSOR_TEXT_MAX);
	assert_int_equal(cursor_read(text, 's', out, sizeof(out), &e), CURSOR_KEY_MAX);
	assert_int_equal(cursor_read(text, 's', out, CURSOR_KEY_MAX - 1, &e), -EINVAL);
}

static void invalid_cursor_is_refused(void **state)
{
	char text[CURSOR_TEXT_MAX + 1], changed[CURSOR_TEXT_MAX + 1];

	refuse("", "ramet-next-cursor");
	refuse("s", "ramet-next-cursor");
	refuse("s00000000", "ramet-next-cursor");
	refuse("s1234567890", "mistyped");
	cursor_write(text, 'p', key, sizeof(key));
	refuse(text, "another list");
	cursor_write(text, 's', key, sizeof(key));
	for (size_t i = 0; text[i]; i++) {
		strcpy(changed, text);
		changed[i] ^= 1;
		refuse(changed, "cursor");
		strcpy(changed, text);
		changed[i] = 0;
		refuse(changed, "cursor");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_cursor_is_read),
		cmocka_unit_test(invalid_cursor_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
