// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>

#include "guest/ports/dial-request.h"

static uint16_t port;

static int parse(const void *payload, uint32_t len)
{
	struct frame f = {.type = AGENT_DIAL, .len = len, .payload = payload};
	struct err e;

	return dial_parse(&f, &port, &e);
}

static void test_a_port_is_parsed(void **state)
{
	assert_int_equal(parse("\x40\x1f", 2), 0);
	assert_int_equal(port, 8000);
	assert_int_equal(parse("\xff\xff", 2), 0);
	assert_int_equal(port, 65535);
}

static void test_other_payloads_are_refused(void **state)
{
	assert_int_equal(parse("", 0), -EPROTO);
	assert_int_equal(parse("\x40", 1), -EPROTO);
	assert_int_equal(parse("\x40\x1f\x00", 3), -EPROTO);
	assert_int_equal(parse("\x00\x00", 2), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_port_is_parsed),
		cmocka_unit_test(test_other_payloads_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
