// SPDX-License-Identifier: Apache-2.0
/* The list of recently requested sizes, which survives a restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "orchestrator/template/recent.h"

static struct recent recent_of(const char *template, uint32_t vcpus, uint32_t ram_mib,
			       uint32_t rootfs_gb)
{
	struct recent r = {.size = {vcpus, ram_mib, rootfs_gb}};

	snprintf(r.template, sizeof(r.template), "%s", template);
	return r;
}

static void expect_recents(const struct recents *r, const char *expected)
{
	char text[RECENT_TEXT_MAX + 1];

	text[recents_print(r, text)] = 0;
	assert_string_equal(text, expected);
}

static void test_most_recent_size_comes_first(void **state)
{
	struct recent a = recent_of("default", 1, 192, 4), b = recent_of("py", 2, 256, 8);
	struct recents r = {0};

	assert_true(recents_note(&r, &a));
	assert_true(recents_note(&r, &b));
	expect_recents(&r, "py 2x256x8\ndefault 1x192x4\n");
	assert_false(recents_note(&r, &a));
	expect_recents(&r, "default 1x192x4\npy 2x256x8\n");
	r.dirty = false;
	assert_false(recents_note(&r, &a));
	assert_false(r.dirty);
}

static void test_only_the_last_sizes_are_remembered(void **state)
{
	struct recents r = {0}, again;
	char text[RECENT_TEXT_MAX];

	for (uint32_t i = 1; i <= 20; i++) {
		struct recent one = recent_of("default", i, 64 * i, i);

		assert_true(recents_note(&r, &one));
	}
	assert_int_equal(r.n, RECENT_MAX);
	assert_int_equal(r.all[0].size.vcpus, 20);
	assert_int_equal(r.all[RECENT_MAX - 1].size.vcpus, 13);
	recents_parse(&again, text, recents_print(&r, text));
	assert_int_equal(again.n, RECENT_MAX);
	assert_int_equal(again.all[RECENT_MAX - 1].size.ram_mib, 64 * 13);
	assert_false(again.all[0].expected);
}

static void test_damaged_lines_are_skipped(void **state)
{
	static const char text[] = "default 1x192x4\n\n../x 1x192x4\ndefault 1x192\n"
				   "default 0x192x4\ndefault -1x192x4\ndefault  1x192x4\n"
				   "default 1x192x4x\ndefault 01x192x4\npy 2x256x8\ndefault 1x64x4";
	struct recents r;

	recents_parse(&r, text, sizeof(text) - 1);
	expect_recents(&r, "default 1x192x4\npy 2x256x8\n");
	recents_parse(&r, text, 0);
	assert_int_equal(r.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_most_recent_size_comes_first),
		cmocka_unit_test(test_only_the_last_sizes_are_remembered),
		cmocka_unit_test(test_damaged_lines_are_skipped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
