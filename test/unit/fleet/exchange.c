// SPDX-License-Identifier: Apache-2.0
/* The lines by which hosts speak of allowances. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/fleet/exchange.h"

#define HEAD	"0123456789abcdef 00000000000000ff 17 "
#define NUMBERS " 1 2 3 4 5 6 7 8 9 10 11 12 13 14" /* all but two */
#define GRANTS	" 1 2 3 4 5 6"			    /* the same */

static void lines_are_read_as_they_are_written(void **state)
{
	struct exchange x = {.keepers = UINT64_MAX, .at = 1, .from = UINT32_MAX}, y;
	struct exchange_granted g = {.sure = true}, h;
	char line[EXCHANGE_LINE_MAX], again[EXCHANGE_LINE_MAX];
	const char *at = line;

	memset(x.tenant, 'a', EXCHANGE_TENANT_MAX);
	for (uint32_t i = 0; i < EXCHANGE_LIMITS; i++) {
		x.limits[i].held = EXCHANGE_SLOTS_MAX;
		x.limits[i].used = EXCHANGE_SLOTS_MAX - 1;
		x.limits[i].want = EXCHANGE_SLOTS_MAX;
		x.limits[i].lacks = i;
		g.limits[i].held = EXCHANGE_SLOTS_MAX;
		g.limits[i].left = i;
	}
	exchange_print(line, &x);
	assert_true(exchange_read(&y, &at));
	assert_string_equal(at, "");
	assert_true(y.keepers == UINT64_MAX && y.at == 1 && y.from == UINT32_MAX);
	assert_int_equal(y.limits[3].used, EXCHANGE_SLOTS_MAX - 1);
	exchange_print(again, &y);
	assert_string_equal(line, again);
	exchange_print_granted(line, &g);
	at = line;
	assert_true(exchange_read_granted(&h, &at));
	assert_string_equal(at, "");
	assert_true(h.sure);
	assert_int_equal(h.limits[3].left, 3);
	exchange_print_granted(again, &h);
	assert_string_equal(line, again);
}

static void lines_follow_each_other(void **state)
{
	const char *at =
		HEAD "tnt_a" NUMBERS " 15 16\n" HEAD "tnt_b" NUMBERS " 15 16 what=ever\nend\n";
	struct exchange x;

	assert_true(exchange_read(&x, &at));
	assert_string_equal(x.tenant, "tnt_a");
	assert_int_equal(x.at, 0xff);
	assert_int_equal(x.limits[3].lacks, 16);
	assert_true(exchange_read(&x, &at));
	assert_string_equal(x.tenant, "tnt_b");
	assert_string_equal(at, "end\n");
	assert_false(exchange_read(&x, &at));
	assert_string_equal(at, "end\n");
}

static void invalid_lines_are_refused(void **state)
{
	static const char *const lines[] = {
		"",
		"\n",
		"end\n",
		"0123456789abcdef",
		"0123456789abcdeg 00000000000000ff 17 tnt_a" NUMBERS " 15 16\n",
		"0123456789abcdef 0000000000000ff 17 tnt_a" NUMBERS " 15 16\n",
		"0123456789abcdef 00000000000000ff 4294967296 tnt_a" NUMBERS " 15 16\n",
		"0123456789abcdef 00000000000000ff -1 tnt_a" NUMBERS " 15 16\n",
		HEAD "\n",
		HEAD " " NUMBERS " 15 16\n",
		HEAD "tnt_a" NUMBERS " 15\n",
		HEAD "tnt_a" NUMBERS " 15 16",
		HEAD "tnt_a" NUMBERS " 15 16x\n",
		HEAD "tnt_a" NUMBERS " 15 64000001\n",
		HEAD "tnt_a" NUMBERS " 15 -16\n",
		HEAD "tnt_a" NUMBERS "  15 16\n",
		HEAD "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" NUMBERS
		     " 15 16\n",
	};
	static const char *const grants[] = {
		"",
		"\n",
		"2" GRANTS " 7 8\n",
		"1" GRANTS " 7\n",
		"1" GRANTS " 7 8",
		"1" GRANTS " 7 8x\n",
		"1" GRANTS " 7 64000001\n",
		"1" GRANTS " 7 -8\n",
		" 1" GRANTS " 7 8\n",
	};
	struct exchange_granted g;
	struct exchange x;

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		const char *at = lines[i];

		assert_false(exchange_read(&x, &at));
	}
	for (size_t i = 0; i < ARRAY_LEN(grants); i++) {
		const char *at = grants[i];

		assert_false(exchange_read_granted(&g, &at));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_read_as_they_are_written),
		cmocka_unit_test(lines_follow_each_other),
		cmocka_unit_test(invalid_lines_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
