// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "guest/exec/output-ring.h"

static struct output_ring ring;

static void test_parts_are_returned_with_their_streams(void **state)
{
	const struct {
		const char *text;
		enum output_kind kind;
	} parts[] = {{"out", OUTPUT_STDOUT},
		     {"err", OUTPUT_STDERR},
		     {"a longer line of output\n", OUTPUT_STDOUT},
		     {"x", OUTPUT_STDERR},
		     {"a bundle of a result", OUTPUT_BUNDLE},
		     {"1", OUTPUT_BUNDLE_END},
		     {"y", OUTPUT_STDOUT},
		     {"", OUTPUT_STDERR}};
	uint64_t at = 0;
	size_t len, parts_seen = 0;
	enum output_kind kind;

	output_ring_clear(&ring);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		output_ring_add(&ring, parts[i].text, strlen(parts[i].text), parts[i].kind);
	for (; at < ring.total; at += len, parts_seen++) {
		const uint8_t *run = output_ring_run(&ring, at, OUTPUT_RING_SIZE, &len, &kind);

		assert_int_equal(len, strlen(parts[parts_seen].text));
		assert_memory_equal(run, parts[parts_seen].text, len);
		assert_int_equal(kind, parts[parts_seen].kind);
	}
	assert_int_equal(parts_seen, 7);
	output_ring_run(&ring, 8, 4, &len, &kind);
	assert_int_equal(len, 4);
}

static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 2654435761u >> 13);
}

/* Kinds of results come late, so that the ring has text of both streams before. */
static enum output_kind kind_at(uint64_t offset)
{
	unsigned late = offset > OUTPUT_RING_SIZE / 2;

	return ((offset / 37 ^ offset / 1000) & 1) | (offset / 211 & late) << 1;
}

static void fill(uint64_t end)
{
	while (ring.total < end) {
		size_t room, n = 0;
		uint64_t at = ring.total;
		uint8_t *to = output_ring_end(&ring, &room);

		for (; n < room && at + n < end && kind_at(at + n) == kind_at(at); n++)
			to[n] = byte_at(at + n);
		output_ring_grow(&ring, n, kind_at(at));
	}
}

static void test_last_bytes_are_kept(void **state)
{
	static const uint64_t ends[] = {1, OUTPUT_RING_SIZE - 1, OUTPUT_RING_SIZE,
					OUTPUT_RING_SIZE + 1,
					3 * (uint64_t)OUTPUT_RING_SIZE + 12345};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		output_ring_clear(&ring);
		fill(ends[i]);
		uint64_t at = output_ring_first(&ring);
		assert_int_equal(at, ends[i] > OUTPUT_RING_SIZE ? ends[i] - OUTPUT_RING_SIZE : 0);
		while (at < ring.total) {
			size_t len;
			enum output_kind kind;
			const uint8_t *p = output_ring_run(&ring, at, 65536, &len, &kind);

			assert_true(len > 0 && len <= ring.total - at);
			for (size_t n = 0; n < len; n++)
				if (p[n] != byte_at(at + n) || kind != kind_at(at + n))
					fail_msg("byte %zu of the run at %zu is wrong", n,
						 (size_t)at);
			at += len;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts_are_returned_with_their_streams),
		cmocka_unit_test(test_last_bytes_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
