// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/meminfo.h"

static char path[] = "/tmp/ramet-meminfo-XXXXXX";

static bool read_back(const char *text, struct meminfo *m)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return meminfo_read(path, m);
}

static void test_total_and_available_are_read_in_bytes(void **state)
{
	struct meminfo m;

	assert_true(read_back("MemTotal:       24683992 kB\nMemFree:        11264000 kB\n"
			      "MemAvailable:   20876288 kB\nBuffers:          123456 kB\n",
			      &m));
	assert_int_equal(m.total, 24683992ull << 10);
	assert_int_equal(m.available, 20876288ull << 10);
	assert_true(meminfo_read("/proc/meminfo", &m));
	assert_true(m.total > 0 && m.available <= m.total);
}

static void test_incomplete_file_is_refused(void **state)
{
	static const char *const texts[] = {"", "MemTotal: 1000 kB\n", "MemAvailable: 1000 kB\n",
					    "MemTotal: 1000 kB\nMemAvailable: kB\n"};
	struct meminfo m;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		m.total = m.available = 1;
		assert_false(read_back(texts[i], &m));
		assert_int_equal(m.total + m.available, 0);
	}
	assert_false(meminfo_read("/proc/no-such-file", &m));
}

static void test_memory_is_low_below_a_32nd(void **state)
{
	struct meminfo m = {.total = 32 << 20, .available = 1 << 20};

	assert_false(meminfo_is_low(&m));
	m.available--;
	assert_true(meminfo_is_low(&m));
	m = (struct meminfo){0}; /* unknown */
	assert_false(meminfo_is_low(&m));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_total_and_available_are_read_in_bytes),
		cmocka_unit_test(test_incomplete_file_is_refused),
		cmocka_unit_test(test_memory_is_low_below_a_32nd),
	};
	int fd = mkstemp(path);

	close(fd);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
