// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

#define TX 1

/* The clock is stopped; a test advances it. */
static uint64_t skipped_s;
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	*t = (struct timespec){.tv_sec = (time_t)(1000 + skipped_s)};
	return 0;
}

struct world {
	struct drv v;
	int read_fd;
	uint64_t at;
};

static void start_on(struct world *w, uint64_t bytes_per_s, int read_fd, int log_fd)
{
	struct vio_dev *dev;

	drv_init(&w->v, 1 << 20);
	assert_int_equal(vio_console_new(&dev, &w->v.mem, w->v.loop, log_fd, bytes_per_s, NULL), 0);
	drv_attach(&w->v, dev);
	drv_start(&w->v, 0, 8);
	w->read_fd = read_fd;
	w->at = drv_alloc(&w->v, 1 << 18, 64);
}

static void start(struct world *w, uint64_t bytes_per_s)
{
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	start_on(w, bytes_per_s, fds[0], fds[1]);
}

static void stop(struct world *w)
{
	drv_fini(&w->v);
	close(w->read_fd);
}

static void say_bytes(struct world *w, const void *text, uint32_t len)
{
	uint16_t head;
	uint32_t got;

	memcpy(drv_ptr(&w->v, w->at), text, len);
	drv_add(&w->v, TX, &(struct drv_buf){w->at, len, false}, 1);
	drv_kick(&w->v, TX);
	drv_run(&w->v);
	assert_true(drv_used(&w->v, TX, &head, &got));
	assert_int_equal(got, 0);
}

static void say(struct world *w, const char *text)
{
	say_bytes(w, text, (uint32_t)strlen(text));
}

static const char *heard(struct world *w)
{
	static char buf[1 << 18];
	ssize_t n = read(w->read_fd, buf, sizeof(buf) - 1);

	buf[n > 0 ? n : 0] = 0;
	return buf;
}

static void test_log_gets_whole_lines(void **state)
{
	struct world w;

	start(&w, 100000);
	say(&w, "hel");
	assert_string_equal(heard(&w), "");
	say(&w, "lo\nnext");
	assert_string_equal(heard(&w), "hello\n");
	say(&w, " line\r\n");
	assert_string_equal(heard(&w), "next line\n");
	say(&w, "no end");
	drv_write(&w.v, DRV_STATUS, 0);
	drv_run(&w.v);
	assert_string_equal(heard(&w), "no end\n");
	stop(&w);
}

static void test_control_bytes_are_escaped(void **state)
{
	struct world w;

	start(&w, 100000);
	say_bytes(&w, "a\x1b[2J\0b\x7f\tc\xc3\xa4\n", 13);
	assert_string_equal(heard(&w), "a\\x1b[2J\\x00b\\x7f\tc\xc3\xa4\n");
	/* U+009B, which has the same effect as ESC [, and the last byte of its encoding alone.
	 * U+00DB and U+201B are printable. */
	say_bytes(&w,
		  "\xc2\x9b"
		  "2J\x9b\xc3\x9b\xe2\x80\x9b\n",
		  11);
	assert_string_equal(heard(&w), "\xc2\\x9b2J\\x9b\xc3\x9b\xe2\x80\x9b\n");
	stop(&w);
}

static void test_endless_line_is_split(void **state)
{
	struct world w;
	char text[2501];

	memset(text, 'x', 2500);
	text[2500] = 0;
	start(&w, 100000);
	say(&w, text);
	say(&w, "\n");
	const char *got = heard(&w);
	size_t xs = 0;
	for (const char *p = got; *p; p++)
		xs += *p == 'x';
	assert_int_equal(xs, 2500);
	assert_true(strchr(got, '\n') - got <= 1000);
	stop(&w);
}

static size_t flood(struct world *w)
{
	size_t passed = 0;

	for (int i = 0; i < 1000; i++) {
		say(w, "0123456789012345678901234567890123456789\n");
		passed += strlen(heard(w));
	}
	return passed;
}

static void test_output_is_rate_limited(void **state)
{
	struct world w;

	start(&w, 100); /* a burst may contain 64 seconds of output */
	size_t first = flood(&w);
	assert_true(first > 6400 - 41 && first <= 6400);
	assert_int_equal(flood(&w), 0);
	skipped_s += 3;
	size_t later = flood(&w);
	assert_true(later > 300 - 41 - 30 && later <= 300 + 41);
	skipped_s += 1000; /* a later burst is at most as long as the first one */
	later = flood(&w);
	assert_true(later > 6400 - 41 - 30 && later <= 6400);
	stop(&w);
}

/* The size has a separate limit, because the rate limit lets the log grow without end. */
static void test_log_file_size_is_limited(void **state)
{
	char path[] = "/tmp/ramet-console-XXXXXX", line[1000];
	int fd = mkostemp(path, O_APPEND | O_CLOEXEC);
	struct world w;

	assert_true(fd >= 0);
	start_on(&w, 1 << 20, open(path, O_RDONLY | O_CLOEXEC), fd);
	unlink(path);
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = 0;
	for (int i = 0; i < 3000; i++)
		say(&w, line);
	say(&w, "\nlast words\n");
	off_t size = lseek(w.read_fd, 0, SEEK_END);
	assert_in_range(size, 11, 1 << 20);
	assert_int_equal(pread(w.read_fd, line, 11, size - 11), 11);
	assert_memory_equal(line, "last words\n", 11);
	stop(&w);
}

static void test_dropped_bytes_are_reported_once(void **state)
{
	static char flood[200000];
	struct world w;

	start(&w, 100000);
	memset(flood, 'y', sizeof(flood));
	say_bytes(&w, flood, sizeof(flood)); /* the device reads only the first 65536 bytes */
	heard(&w);
	say(&w, "\nz\n");
	assert_non_null(strstr(heard(&w), " bytes dropped]\n"));
	say(&w, "z\n");
	assert_string_equal(heard(&w), "z\n"); /* reported once */
	stop(&w);
}

static void test_stopped_log_reader_does_not_block_the_device(void **state)
{
	struct world w;
	char line[901];

	memset(line, 'x', 899);
	strcpy(line + 899, "\n");
	start(&w, 100u << 20);
	for (int i = 0; i < 500; i++) /* far more than a pipe holds */
		say(&w, line);
	size_t first = strlen(heard(&w));
	assert_true(first > 4096 && first < 500 * 900);
	say(&w, "after\n");
	assert_non_null(strstr(heard(&w), "bytes dropped]\nafter\n"));
	stop(&w);
}

static void test_receive_buffers_are_not_used(void **state)
{
	struct world w;
	uint16_t head;
	uint32_t len;

	start(&w, 100000);
	drv_add(&w.v, 0, &(struct drv_buf){w.at, 64, true}, 1);
	drv_kick(&w.v, 0);
	drv_run(&w.v);
	assert_false(drv_used(&w.v, 0, &head, &len));
	say(&w, "still here\n");
	assert_string_equal(heard(&w), "still here\n");
	stop(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log_gets_whole_lines),
		cmocka_unit_test(test_control_bytes_are_escaped),
		cmocka_unit_test(test_endless_line_is_split),
		cmocka_unit_test(test_output_is_rate_limited),
		cmocka_unit_test(test_log_file_size_is_limited),
		cmocka_unit_test(test_dropped_bytes_are_reported_once),
		cmocka_unit_test(test_stopped_log_reader_does_not_block_the_device),
		cmocka_unit_test(test_receive_buffers_are_not_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
