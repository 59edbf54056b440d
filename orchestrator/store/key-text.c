// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/store/key-text.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/random.h"

#define PREFIX	     "rmt_"
#define PREFIX_LEN   4
#define BODY_LEN     32
#define CHECK_LEN    6 /* 62^6 > 2^32 */
#define BASE	     62
#define FAIR_BYTES   (256 / BASE * BASE) /* larger bytes would make the first digits more likely */
#define RANDOM_BATCH 64

static const char digits[BASE + 1] =
	"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static void fill_random(char *out, size_t n)
{
	uint8_t random[RANDOM_BATCH];
	size_t have = 0;

	while (have < n) {
		random_bytes(random, sizeof(random));
		for (size_t i = 0; i < sizeof(random) && have < n; i++)
			if (random[i] < FAIR_BYTES)
				out[have++] = digits[random[i] % BASE];
	}
	explicit_bzero(random, sizeof(random));
}

static void check_digits(const char *text, char out[static CHECK_LEN])
{
	uint32_t crc = crc32c(0, text, PREFIX_LEN + BODY_LEN);

	for (int i = CHECK_LEN - 1; i >= 0; i--) {
		out[i] = digits[crc % BASE];
		crc /= BASE;
	}
}

void key_text_make(char out[static KEY_TEXT_LEN + 1])
{
	memcpy(out, PREFIX, PREFIX_LEN);
	fill_random(out + PREFIX_LEN, BODY_LEN);
	check_digits(out, out + PREFIX_LEN + BODY_LEN);
	out[KEY_TEXT_LEN] = '\0';
}

bool key_text_is_whole(const char *text, size_t len)
{
	char check[CHECK_LEN];

	if (len != KEY_TEXT_LEN || memcmp(text, PREFIX, PREFIX_LEN) != 0)
		return false;
	for (size_t i = PREFIX_LEN; i < PREFIX_LEN + BODY_LEN; i++)
		if (!text[i] || !strchr(digits, text[i]))
			return false;
	check_digits(text, check);
	return memcmp(text + PREFIX_LEN + BODY_LEN, check, CHECK_LEN) == 0;
}

void key_text_hash(const char *text, size_t len, uint8_t out[static KEY_HASH_LEN])
{
	SHA256((const unsigned char *)text, len, out);
}
