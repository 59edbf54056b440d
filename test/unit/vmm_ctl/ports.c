// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/log.h"
#include "proto/platform.h"
#include "vmm/dev/cmos.h"
#include "vmm/dev/i8042.h"
#include "vmm/dev/serial.h"

static int asked[2];

static void on_request(void *arg, enum i8042_request what)
{
	asked[what]++;
}

static uint8_t in(struct bus *b, uint16_t port)
{
	uint8_t v = 0;

	bus_read(b, BUS_PORT, port, &v, 1);
	return v;
}

static void out(struct bus *b, uint16_t port, uint8_t v)
{
	bus_write(b, BUS_PORT, port, &v, 1);
}

static uint8_t cmos_at(struct bus *b, uint8_t index)
{
	out(b, 0x70, index);
	return in(b, 0x71);
}

static int from_bcd(uint8_t v)
{
	return (v >> 4) * 10 + (v & 15);
}

static void test_reset_and_power_off_are_requested(void **state)
{
	struct err e = {0};
	struct i8042 k;
	struct bus b = {0};

	assert_int_equal(i8042_add(&k, &b, on_request, NULL, &e), 0);
	out(&b, 0x64, 0xd1);
	out(&b, PLATFORM_POWER_PORT, 0);
	assert_int_equal(asked[I8042_RESET] + asked[I8042_POWER_OFF], 0);
	out(&b, 0x64, 0xfe);
	assert_int_equal(asked[I8042_RESET], 1);
	out(&b, PLATFORM_POWER_PORT, PLATFORM_POWER_OFF);
	assert_int_equal(asked[I8042_POWER_OFF], 1);
	assert_int_equal(in(&b, 0x64), 0);
}

/* Returns the host's time from the clock that the device reads: time() may lag it by a tick. */
static time_t host_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec;
}

/* The clock shows the host's time, whether or not a second ends meanwhile. */
static void test_cmos_clock_shows_the_time(void **state)
{
	struct err e = {0};
	struct cmos c = {0};
	struct bus b = {0};
	time_t before, after, shown;
	struct tm t = {0};

	assert_int_equal(cmos_add(&c, &b, &e), 0);
	do {
		before = host_seconds();
		t.tm_sec = from_bcd(cmos_at(&b, 0));
		t.tm_min = from_bcd(cmos_at(&b, 2));
		t.tm_hour = from_bcd(cmos_at(&b, 4));
		t.tm_mday = from_bcd(cmos_at(&b, 7));
		t.tm_mon = from_bcd(cmos_at(&b, 8)) - 1;
		t.tm_year = from_bcd(cmos_at(&b, 50)) * 100 + from_bcd(cmos_at(&b, 9)) - 1900;
		after = host_seconds();
	} while (before != after);
	shown = timegm(&t);
	assert_int_equal(shown, before);
	/* No update is in progress, and the registers are in the expected format. */
	assert_int_equal(cmos_at(&b, 10) & 0x80, 0);
	assert_int_equal(cmos_at(&b, 11) & 0x06, 0x02);
}

static void test_cmos_index_is_restored(void **state)
{
	struct err e = {0};
	struct cmos c = {0};
	struct bus b = {0};
	uint8_t buf[8];
	struct wire w = wire_on(buf, sizeof(buf)), r;

	assert_int_equal(cmos_add(&c, &b, &e), 0);
	out(&b, 0x70, 11);
	cmos_save(&c, &w);
	out(&b, 0x70, 0);
	r = wire_from(buf, w.pos);
	cmos_restore(&c, &r);
	assert_int_equal(in(&b, 0x71), 0x02);
}

static char logged[64];

static void note_log(const char *lines, size_t len)
{
	const char *text = memmem(lines, len, "serial: ", 8);

	assert_non_null(text);
	snprintf(logged, sizeof(logged), "%.*s", (int)(lines + len - text), text);
}

static void test_serial_port_logs_lines_but_not_the_divisor(void **state)
{
	struct err e = {0};
	struct serial s;
	struct bus b = {0};

	assert_int_equal(serial_add(&s, &b, &e), 0);
	log_set_output(note_log);
	out(&b, SERIAL_PORT, 'h');
	/* Linux sets the rate with these writes (early_serial_hw_init). */
	out(&b, SERIAL_PORT + 3, 0x83);
	assert_int_equal(in(&b, SERIAL_PORT + 3), 0x83);
	out(&b, SERIAL_PORT, 'x');
	out(&b, SERIAL_PORT + 3, 0x03);
	assert_int_equal(in(&b, SERIAL_PORT + 5) & 0x60, 0x60);
	out(&b, SERIAL_PORT, 'i');
	assert_string_equal(logged, "");
	out(&b, SERIAL_PORT, '\r');
	out(&b, SERIAL_PORT, '\n');
	log_set_output(NULL);
	assert_string_equal(logged, "serial: hi\n");
	pthread_mutex_destroy(&s.lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reset_and_power_off_are_requested),
		cmocka_unit_test(test_cmos_clock_shows_the_time),
		cmocka_unit_test(test_cmos_index_is_restored),
		cmocka_unit_test(test_serial_port_logs_lines_but_not_the_divisor),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
