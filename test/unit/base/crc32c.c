// SPDX-License-Identifier: Apache-2.0
#include "../../../base/crc32c.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Compares with the check value of CRC-32C, and with RFC 3720 B.4 for 32 bytes of zeros. */
static void test_published_values_are_computed(void **state)
{
	static const uint8_t zeros[32];

	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
	assert_int_equal(crc32c(0, zeros, sizeof(zeros)), 0x8a9136aau);
	assert_int_equal(crc32c(0, "", 0), 0);
}

static void test_crc_of_parts_equals_crc_of_the_whole(void **state)
{
	uint8_t data[61];
	uint32_t whole;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 37);
	whole = crc32c(0, data, sizeof(data));
	for (size_t cut = 0; cut <= sizeof(data); cut++)
		assert_int_equal(crc32c(crc32c(0, data, cut), data + cut, sizeof(data) - cut),
				 whole);
}

static void test_bitwise_and_fast_versions_agree(void **state)
{
	const uint8_t data[] = "the quick brown fox jumps over the lazy dog";

	for (size_t len = 0; len < sizeof(data); len++)
		assert_int_equal(crc_bits(~0u, data, len), crc_any(~0u, data, len));
}

static void test_zero_page_equals_4096_zero_bytes(void **state)
{
	static const uint8_t zeros[4096];
	uint32_t crc = 0;

	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(crc32c_zero_page(crc), crc32c(crc, zeros, sizeof(zeros)));
		crc = crc32c(crc, &i, sizeof(i));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published_values_are_computed),
		cmocka_unit_test(test_crc_of_parts_equals_crc_of_the_whole),
		cmocka_unit_test(test_bitwise_and_fast_versions_agree),
		cmocka_unit_test(test_zero_page_equals_4096_zero_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
