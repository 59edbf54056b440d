// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

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
	struct i8042 *k;
	struct bus *b;

	assert_int_equal(bus_new(&b, &e), 0);
	assert_int_equal(i8042_new(&k, b, on_request, NULL, &e), 0);
	out(b, 0x64, 0xd1);
	out(b, PLATFORM_POWER_PORT, 0);
	assert_int_equal(asked[I8042_RESET] + asked[I8042_POWER_OFF], 0);
	out(b, 0x64, 0xfe);
	assert_int_equal(asked[I8042_RESET], 1);
	out(b, PLATFORM_POWER_PORT, PLATFORM_POWER_OFF);
	assert_int_equal(asked[I8042_POWER_OFF], 1);
	assert_int_equal(in(b, 0x64), 0);
	i8042_free(k);
	bus_free(b);
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
	struct cmos *c;
	struct bus *b;
	time_t before, after, shown;
	struct tm t = {0};

	assert_int_equal(bus_new(&b, &e), 0);
	assert_int_equal(cmos_new(&c, b, &e), 0);
	do {
		before = host_seconds();
		t.tm_sec = from_bcd(cmos_at(b, 0));
		t.tm_min = from_bcd(cmos_at(b, 2));
		t.tm_hour = from_bcd(cmos_at(b, 4));
		t.tm_mday = from_bcd(cmos_at(b, 7));
		t.tm_mon = from_bcd(cmos_at(b, 8)) - 1;
		t.tm_year = from_bcd(cmos_at(b, 50)) * 100 + from_bcd(cmos_at(b, 9)) - 1900;
		after = host_seconds();
	} while (before != after);
	shown = timegm(&t);
	assert_int_equal(shown, before);
	/* No update is in progress, and the registers are in the expected format. */
	assert_int_equal(cmos_at(b, 10) & 0x80, 0);
	assert_int_equal(cmos_at(b, 11) & 0x06, 0x02);
	cmos_free(c);
	bus_free(b);
}

static void test_cmos_index_is_restored(void **state)
{
	struct err e = {0};
	struct cmos *c;
	struct bus *b;
	uint8_t buf[8];
	struct wire w = wire_on(buf, sizeof(buf)), r;

	assert_int_equal(bus_new(&b, &e), 0);
	assert_int_equal(cmos_new(&c, b, &e), 0);
	out(b, 0x70, 11);
	cmos_save(c, &w);
	out(b, 0x70, 0);
	r = wire_from(buf, w.pos);
	cmos_restore(c, &r);
	assert_int_equal(in(b, 0x71), 0x02);
	cmos_free(c);
	bus_free(b);
}

static void test_serial_port_raises_its_interrupt(void **state)
{
	struct err e = {0};
	struct irq_line line;
	struct serial *s;
	struct bus *b;
	uint64_t count = 0;

	assert_int_equal(bus_new(&b, &e), 0);
	assert_int_equal(irq_line_init(&line, SERIAL_GSI, &e), 0);
	assert_int_equal(serial_new(&s, b, &line, &e), 0);
	out(b, SERIAL_PORT, 'a');
	assert_int_equal(read(line.fd, &count, sizeof(count)), -1);
	out(b, SERIAL_PORT + 1, 2);
	assert_int_equal(read(line.fd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(in(b, SERIAL_PORT + 2) & 7, 2);
	assert_int_equal(in(b, SERIAL_PORT + 2) & 7, 1);
	/* While DLAB is set, the divisor replaces the data register. */
	out(b, SERIAL_PORT + 3, 0x83);
	out(b, SERIAL_PORT, 0x42);
	assert_int_equal(in(b, SERIAL_PORT), 0x42);
	out(b, SERIAL_PORT + 3, 0x03);
	assert_int_equal(in(b, SERIAL_PORT), 0);
	assert_int_equal(in(b, SERIAL_PORT + 5) & 0x60, 0x60);
	serial_free(s);
	irq_line_fini(&line);
	bus_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reset_and_power_off_are_requested),
		cmocka_unit_test(test_cmos_clock_shows_the_time),
		cmocka_unit_test(test_cmos_index_is_restored),
		cmocka_unit_test(test_serial_port_raises_its_interrupt),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
