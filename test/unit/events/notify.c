// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/events/rules.h"
#include "orchestrator/events/sign.h"

/* --- rules ---------------------------------------------------------------------------------- */

static void rules_select_events(void **state)
{
	assert_true(rules_want("sandbox.*", "sandbox.frozen"));
	assert_false(rules_want("sandbox.*", "key.made"));
	assert_true(rules_want("*", "key.made"));
	assert_true(rules_want("key.made, sandbox.died", "sandbox.died"));
	assert_true(rules_want("key.made,sandbox.died", "key.made"));
	assert_false(rules_want("sandbox.die", "sandbox.died"));
	assert_false(rules_want("sandbox.died2", "sandbox.died"));
	assert_false(rules_want(" , ,", "sandbox.died"));
	assert_false(rules_want("", "sandbox.died"));
}

static void waits_double_up_to_five_minutes(void **state)
{
	static const uint32_t most[] = {1000,  2000,   4000,   8000,   16000, 32000,
					64000, 128000, 256000, 300000, 300000};

	for (unsigned i = 0; i < ARRAY_LEN(most); i++) {
		assert_int_equal(rules_wait_ms(i + 1, 0), most[i] / 2);
		assert_int_equal(rules_wait_ms(i + 1, most[i] / 2), most[i]);
		for (uint32_t chance = 1; chance; chance <<= 1)
			assert_in_range(rules_wait_ms(i + 1, chance), most[i] / 2, most[i]);
	}
	assert_int_equal(rules_wait_ms(1000000, 0), 150000);
}

/* --- the signature -------------------------------------------------------------------------- */

static void signature_matches_other_implementations(void **state)
{
	char text[SIGNATURE_MAX];

	/* Python: hmac.new(b"0123456789abcdef", b'1700000000.{"n":1}', "sha256").hexdigest() */
	sign(text, "0123456789abcdef", 1700000000, "{\"n\":1}", 7);
	assert_string_equal(
		text,
		"t=1700000000,v1=d9a22bdcfdab07f3be7c84c30003fdc81a4c25420850e983eb235d7e17846231");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_select_events),
		cmocka_unit_test(waits_double_up_to_five_minutes),
		cmocka_unit_test(signature_matches_other_implementations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
