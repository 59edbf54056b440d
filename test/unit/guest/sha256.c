// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/files/sha256.h"

static void hex_of(const void *data, size_t len, size_t step, bool portable, char hex[65])
{
	const uint8_t *p = data;
	uint8_t out[SHA256_LEN];
	struct sha256 s;

	sha256_init(&s);
	s.portable |= portable;
	while (len) {
		size_t n = len < step ? len : step;

		sha256_add(&s, p, n);
		p += n;
		len -= n;
	}
	sha256_end(&s, out);
	for (int i = 0; i < SHA256_LEN; i++)
		sprintf(hex + 2 * i, "%02x", out[i]);
}

/* FIPS 180-4's examples, and the length at which the padding takes a separate block. */
static const struct {
	const char *text, *hex;
} examples[] = {
	{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
	 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
};

static void test_examples_of_the_standard(void **state)
{
	char hex[65];

	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++)
		for (int portable = 0; portable < 2; portable++)
			for (size_t step = 1; step < 70; step += 7) {
				hex_of(examples[i].text, strlen(examples[i].text), step, portable,
				       hex);
				assert_string_equal(hex, examples[i].hex);
			}
}

static void test_hash_of_a_million_letters(void **state)
{
	char *text = malloc(1000000), hex[65];

	memset(text, 'a', 1000000);
	for (int portable = 0; portable < 2; portable++) {
		hex_of(text, 1000000, 65537, portable, hex);
		assert_string_equal(
			hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	}
	free(text);
}

static void test_both_implementations_agree_at_every_length(void **state)
{
	char data[300], one[65], other[65];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7919 >> 3);
	for (size_t len = 0; len <= sizeof(data); len++) {
		hex_of(data, len, 300, false, one);
		hex_of(data, len, 13, true, other);
		assert_string_equal(one, other);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examples_of_the_standard),
		cmocka_unit_test(test_hash_of_a_million_letters),
		cmocka_unit_test(test_both_implementations_agree_at_every_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
