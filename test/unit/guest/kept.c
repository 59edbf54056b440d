// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "guest/kept.h"

static struct kept kept;

static void test_pieces_come_back_with_their_streams(void **state)
{
	const struct {
		const char *text;
		bool is_stderr;
	} parts[] = {{"out", false}, {"err", true}, {"a longer line of output\n", false},
		     {"x", true},    {"y", false},  {"", true}};
	uint64_t at = 0;
	size_t len, parts_seen = 0;
	bool is_stderr;

	kept_clear(&kept);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		kept_add(&kept, parts[i].text, strlen(parts[i].text), parts[i].is_stderr);
	for (; at < kept.total; at += len, parts_seen++) {
		const uint8_t *piece = kept_piece(&kept, at, KEPT_SIZE, &len, &is_stderr);

		assert_int_equal(len, strlen(parts[parts_seen].text));
		assert_memory_equal(piece, parts[parts_seen].text, len);
		assert_int_equal(is_stderr, parts[parts_seen].is_stderr);
	}
	assert_int_equal(parts_seen, 5);
	kept_piece(&kept, 8, 4, &len, &is_stderr);
	assert_int_equal(len, 4);
}

static uint8_t byte_at(uint64_t place)
{
	return (uint8_t)(place * 2654435761u >> 13);
}

static bool stream_at(uint64_t place)
{
	return (place / 37 ^ place / 1000) & 1;
}

static void fill(uint64_t end)
{
	while (kept.total < end) {
		size_t room, n = 0;
		uint64_t at = kept.total;
		uint8_t *to = kept_end(&kept, &room);

		for (; n < room && at + n < end && stream_at(at + n) == stream_at(at); n++)
			to[n] = byte_at(at + n);
		kept_grow(&kept, n, stream_at(at));
	}
}

static void test_the_last_bytes_stay_however_many_came(void **state)
{
	static const uint64_t ends[] = {1, KEPT_SIZE - 1, KEPT_SIZE, KEPT_SIZE + 1,
					3 * (uint64_t)KEPT_SIZE + 12345};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		kept_clear(&kept);
		fill(ends[i]);
		uint64_t at = kept_first(&kept);
		assert_int_equal(at, ends[i] > KEPT_SIZE ? ends[i] - KEPT_SIZE : 0);
		while (at < kept.total) {
			size_t len;
			bool is_stderr;
			const uint8_t *p = kept_piece(&kept, at, 65536, &len, &is_stderr);

			assert_true(len > 0 && len <= kept.total - at);
			for (size_t n = 0; n < len; n++)
				if (p[n] != byte_at(at + n) || is_stderr != stream_at(at + n))
					fail_msg("byte %zu of the piece at %zu", n, (size_t)at);
			at += len;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces_come_back_with_their_streams),
		cmocka_unit_test(test_the_last_bytes_stay_however_many_came),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
