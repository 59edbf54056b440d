// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "base/wire.h"

static void test_written_fields_are_read_back(void **state)
{
	uint8_t buf[64];
	struct wire w = wire_on(buf, sizeof(buf));

	wire_put_u8(&w, 0xab);
	wire_put_u16(&w, 0x1234);
	wire_put_u32(&w, 0xdeadbeef);
	wire_put_u64(&w, 0x0102030405060708);
	wire_put_str(&w, "ramet", 5);
	assert_false(w.bad);

	struct wire r = wire_from(buf, w.pos);
	size_t len;
	assert_int_equal(wire_get_u8(&r), 0xab);
	assert_int_equal(wire_get_u16(&r), 0x1234);
	assert_int_equal(wire_get_u32(&r), 0xdeadbeef);
	assert_int_equal(wire_get_u64(&r), 0x0102030405060708);
	assert_memory_equal(wire_get_str(&r, &len, 5), "ramet", 5);
	assert_int_equal(len, 5);
	assert_int_equal(wire_left(&r), 0);
	assert_false(r.bad);
}

static void test_layout_is_little_endian(void **state)
{
	uint8_t buf[4];
	struct wire w = wire_on(buf, sizeof(buf));

	wire_put_u32(&w, 0x01020304);
	assert_memory_equal(buf, "\x04\x03\x02\x01", 4);
}

static void test_write_past_the_end_sets_bad_and_writes_nothing(void **state)
{
	uint8_t buf[4] = {0};
	struct wire w = wire_on(buf, 3);

	wire_put_u32(&w, 0xffffffff);
	assert_true(w.bad);
	assert_int_equal(w.pos, 0);
	assert_memory_equal(buf, "\0\0\0\0", 4);
	wire_put_u8(&w, 1); /* stays bad although one byte would fit */
	assert_int_equal(buf[0], 0);
}

static void test_read_past_the_end_returns_zero_and_stays_bad(void **state)
{
	struct wire r = wire_from("\x01\x02", 2);

	assert_int_equal(wire_get_u32(&r), 0);
	assert_true(r.bad);
	assert_int_equal(wire_get_u8(&r), 0);
}

static void test_string_longer_than_the_rest_is_refused(void **state)
{
	struct wire r = wire_from("\xff\xff\xff\xff\x61", 5);
	size_t len = 7;

	assert_null(wire_get_str(&r, &len, SIZE_MAX));
	assert_int_equal(len, 0);
	assert_true(r.bad);
}

static void test_string_over_the_limit_is_refused(void **state)
{
	struct wire r = wire_from("\x03\0\0\0abc", 7);
	size_t len;

	assert_null(wire_get_str(&r, &len, 2));
	assert_true(r.bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_written_fields_are_read_back),
		cmocka_unit_test(test_layout_is_little_endian),
		cmocka_unit_test(test_write_past_the_end_sets_bad_and_writes_nothing),
		cmocka_unit_test(test_read_past_the_end_returns_zero_and_stays_bad),
		cmocka_unit_test(test_string_longer_than_the_rest_is_refused),
		cmocka_unit_test(test_string_over_the_limit_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
