// SPDX-License-Identifier: Apache-2.0
/* What hosts say of themselves, as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/fleet/load.h"

static const struct place_load some = {.used = 640,
				       .closed = true,
				       .warm = {2, 0, 255, [7] = 1},
				       .sandboxes = 12,
				       .free_mib = 4096};

static bool reads(const char *text, struct place_load *load)
{
	return load_read(load, text, strlen(text));
}

static void load_is_read_as_it_was_printed(void **state)
{
	struct place_load load = {0};
	char text[LOAD_TEXT_MAX];

	load_print(text, &some);
	assert_string_equal(text, "640 1 2 0 255 0 0 0 0 1 12 4096");
	assert_true(reads(text, &load));
	assert_memory_equal(&load, &some, sizeof(load));
	load_print(text, &(struct place_load){.used = PLACE_FULL,
					      .warm = {255, 255, 255, 255, 255, 255, 255, 255},
					      .sandboxes = UINT32_MAX,
					      .free_mib = UINT32_MAX});
	assert_true(reads(text, &load));
	assert_int_equal(load.free_mib, UINT32_MAX);
}

static void later_versions_may_say_more(void **state)
{
	struct place_load load;

	assert_true(reads("640 1 2 0 255 0 0 0 0 1 12 4096 more", &load));
	assert_int_equal(load.used, 640);
	assert_int_equal(load.free_mib, 4096);
}

static void what_operators_see_may_be_missing(void **state)
{
	static const char *const ends[] = {"",	    " ",	 " 12",	  " 12 ",
					   " 12 x", " 12 4096x", " more", " 12 4294967296"};

	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		struct place_load load = some;
		char text[64];

		snprintf(text, sizeof(text), "640 1 2 0 255 0 0 0 0 1%s", ends[i]);
		assert_true(reads(text, &load));
		assert_int_equal(load.used, 640);
		assert_int_equal(load.sandboxes + load.free_mib, 0);
	}
}

static void invalid_load_changes_nothing(void **state)
{
	static const char *const texts[] = {
		"",
		" ",
		"640",
		"640 1 2 0 255 0 0 0 0",
		"1001 1 2 0 255 0 0 0 0 1",
		"640 2 2 0 255 0 0 0 0 1",
		"640 1 2 0 256 0 0 0 0 1",
		"640 1 2 0 255 0 0 0 0 1x",
		"640  1 2 0 255 0 0 0 0 1",
		" 640 1 2 0 255 0 0 0 0 1",
		"-1 1 2 0 255 0 0 0 0 1",
		"99999999999999999999 1 2 0 255 0 0 0 0 1",
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct place_load load = some;

		assert_false(reads(texts[i], &load));
		assert_memory_equal(&load, &some, sizeof(load));
	}
}

/* Whichever host computes it. */
static void kind_depends_on_template_and_size(void **state)
{
	uint32_t seen = 0;

	for (uint32_t ram = 1; ram < 50; ram++) {
		const uint32_t kind = load_kind("default", 1, 64 * ram, 1);

		assert_int_equal(kind, load_kind("default", 1, 64 * ram, 1));
		assert_true(kind < LOAD_KIND_NONE);
		seen |= 1u << kind;
	}
	assert_int_equal(seen, (1u << LOAD_KIND_NONE) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(load_is_read_as_it_was_printed),
		cmocka_unit_test(later_versions_may_say_more),
		cmocka_unit_test(what_operators_see_may_be_missing),
		cmocka_unit_test(invalid_load_changes_nothing),
		cmocka_unit_test(kind_depends_on_template_and_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
