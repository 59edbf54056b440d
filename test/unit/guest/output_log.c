// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "guest/process/output-log.h"

static struct output_log *begin(void)
{
	static struct output_log l;

	output_log_drop(&l);
	memset(&l, 0, sizeof(l));
	return &l;
}

static void add(struct output_log *l, unsigned stream, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len) {
		size_t room;
		uint8_t *to = output_log_end(l, stream, &room);
		size_t n = len < room ? len : room;

		assert_non_null(to);
		memcpy(to, at, n);
		output_log_grow(l, stream, n);
		at += n;
		len -= n;
	}
}

static void expect(const struct output_log *l, uint64_t offset, size_t max, unsigned stream,
		   const char *text)
{
	struct output_part part;
	char got[64];

	assert_true(output_log_find(l, offset, max, &part));
	assert_int_equal(part.offset, offset);
	assert_int_equal(part.stream, stream);
	assert_int_equal(part.len[0] + part.len[1], strlen(text));
	memcpy(got, part.bytes[0], part.len[0]);
	memcpy(got + part.len[0], part.bytes[1], part.len[1]);
	assert_memory_equal(got, text, strlen(text));
}

static void test_streams_are_found_in_the_order_they_came(void **state)
{
	struct output_log *l = begin();
	struct output_part part;

	assert_false(output_log_find(l, 0, 100, &part));
	add(l, 0, "one ", 4);
	add(l, 0, "two ", 4);
	add(l, 1, "three ", 6);
	add(l, 0, "four", 4);
	assert_int_equal(l->total, 18);
	expect(l, 0, 100, 0, "one two ");
	expect(l, 0, 3, 0, "one");
	expect(l, 6, 100, 0, "o ");
	expect(l, 8, 100, 1, "three ");
	expect(l, 13, 100, 1, " ");
	expect(l, 14, 100, 0, "four");
	assert_false(output_log_find(l, 18, 100, &part));
}

static void test_a_stream_keeps_its_last_bytes_whatever_the_other_prints(void **state)
{
	struct output_log *l = begin();
	uint8_t *many = calloc(1, AGENT_PROC_RING);
	struct output_part part;

	add(l, 1, "keep", 4);
	for (int i = 0; i < 3; i++)
		add(l, 0, many, AGENT_PROC_RING);
	add(l, 0, "end", 3);
	expect(l, 0, 100, 1, "keep");
	assert_true(output_log_find(l, 4, SIZE_MAX, &part));
	assert_int_equal(part.offset, 4 + 2 * AGENT_PROC_RING + 3);
	assert_int_equal(part.len[0] + part.len[1], AGENT_PROC_RING);
	assert_int_equal(part.len[1], 3);
	assert_memory_equal(part.bytes[1], "end", 3);
	free(many);
}

static void test_dropped_output_is_not_found(void **state)
{
	struct output_log *l = begin();
	struct output_part part;
	uint8_t *many = calloc(1, AGENT_PROC_RING);

	add(l, 1, "err", 3);
	assert_in_range(output_log_kept(l), 3, 99);
	add(l, 0, many, AGENT_PROC_RING);
	add(l, 0, many, 1);
	assert_in_range(output_log_kept(l), AGENT_PROC_RING + 3, AGENT_PROC_RING + 99);
	for (size_t i = 0; i < LOG_RUNS; i++)
		add(l, i & 1, "a", 1);
	assert_true(output_log_kept(l) > AGENT_PROC_RING + LOG_RUNS * 16);
	output_log_drop(l);
	assert_int_equal(output_log_kept(l), 0);
	assert_int_equal(l->total, AGENT_PROC_RING + 4 + LOG_RUNS);
	assert_false(output_log_find(l, 0, 100, &part));
	free(many);
}

static void test_oldest_runs_are_lost_when_there_are_too_many(void **state)
{
	struct output_log *l = begin();
	struct output_part part;

	for (unsigned i = 0; i < LOG_RUNS + 10; i++)
		add(l, i & 1, i & 1 ? "e" : "o", 1);
	assert_true(output_log_find(l, 0, 100, &part));
	assert_int_equal(part.offset, 10);
	expect(l, LOG_RUNS + 9, 100, 1, "e");
}

/* A copy of all output is kept beside the log; each read must agree with it. */
static void test_random_output_is_found_again(void **state)
{
	enum { TOTAL = 6 << 20 };
	struct output_log *l = begin();
	uint8_t *bytes = malloc(TOTAL), *streams = malloc(TOTAL);
	uint64_t place[2] = {0, 0};
	uint64_t *places = malloc(TOTAL * sizeof(*places));

	srandom(7);
	for (size_t at = 0; at < TOTAL;) {
		size_t n = 1 + (size_t)random() % (random() % 10 ? 300 : 90000);
		unsigned stream = random() % 5 == 0;

		n = n < TOTAL - at ? n : TOTAL - at;
		for (size_t i = 0; i < n; i++) {
			bytes[at + i] = (uint8_t)random();
			streams[at + i] = (uint8_t)stream;
			places[at + i] = place[stream]++;
		}
		add(l, stream, bytes + at, n);
		at += n;
	}
	size_t seen = 0;
	struct output_part part;
	for (uint64_t at = 0; output_log_find(l, at, 1 + (size_t)random() % 70000, &part);) {
		assert_true(part.offset >= at);
		for (; at < part.offset; at++)
			assert_true(places[at] + AGENT_PROC_RING < place[streams[at]]);
		for (int i = 0; i < 2; i++)
			for (size_t j = 0; j < part.len[i]; j++, at++) {
				assert_int_equal(streams[at], part.stream);
				assert_int_equal(bytes[at], part.bytes[i][j]);
				seen++;
			}
	}
	assert_int_equal(seen, 2 * AGENT_PROC_RING);
	free(bytes);
	free(streams);
	free(places);
}

static void test_runs_are_counted(void **state)
{
	struct output_log *l = begin();

	add(l, 0, "one two ", 8);
	add(l, 1, "three ", 6);
	add(l, 0, "four", 4);
	assert_int_equal(output_log_runs_after(l, 0), 3);
	assert_int_equal(output_log_runs_after(l, 7), 3);
	assert_int_equal(output_log_runs_after(l, 8), 2);
	assert_int_equal(output_log_runs_after(l, 18), 0);
	for (size_t i = 0; i < 100000; i++)
		add(l, i & 1, "ab", 2);
	assert_int_equal(output_log_runs_after(l, 0), LOG_RUNS);
	output_log_drop(l);
	assert_int_equal(output_log_runs_after(l, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_streams_are_found_in_the_order_they_came),
		cmocka_unit_test(test_a_stream_keeps_its_last_bytes_whatever_the_other_prints),
		cmocka_unit_test(test_dropped_output_is_not_found),
		cmocka_unit_test(test_oldest_runs_are_lost_when_there_are_too_many),
		cmocka_unit_test(test_random_output_is_found_again),
		cmocka_unit_test(test_runs_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
