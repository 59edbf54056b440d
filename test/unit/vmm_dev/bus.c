// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "vmm/dev/bus.h"

struct seen {
	uint64_t offset;
	uint32_t len;
	uint8_t data[8];
	int reads, writes;
};

static void dev_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	struct seen *s = dev;

	s->offset = offset;
	s->len = len;
	s->reads++;
	memset(data, 0x11, len);
}

static void dev_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct seen *s = dev;

	s->offset = offset;
	s->len = len;
	s->writes++;
	memcpy(s->data, data, len);
}

static const struct bus_ops ops = {dev_read, dev_write};

static void test_access_reaches_its_device(void **state)
{
	struct seen low = {0}, high = {0}, port = {0};
	uint8_t data[8] = {1, 2, 3, 4};
	struct bus b = {0};

	assert_int_equal(bus_add(&b, BUS_MMIO, 0x1000, 0x100, &ops, &low, NULL), 0);
	assert_int_equal(bus_add(&b, BUS_MMIO, 0x1100, 0x100, &ops, &high, NULL), 0);
	assert_int_equal(bus_add(&b, BUS_PORT, 0x1000, 8, &ops, &port, NULL), 0);
	bus_write(&b, BUS_MMIO, 0x10fc, data, 4);
	assert_int_equal(low.offset, 0xfc);
	assert_memory_equal(low.data, data, 4);
	bus_read(&b, BUS_MMIO, 0x1100, data, 8);
	assert_int_equal(high.reads, 1);
	assert_int_equal(high.offset, 0);
	assert_int_equal(data[7], 0x11);
	bus_write(&b, BUS_PORT, 0x1007, data, 1);
	assert_int_equal(port.writes, 1);
	assert_int_equal(port.offset, 7);
}

static void test_reads_outside_of_devices_return_ones(void **state)
{
	static const struct {
		uint64_t addr;
		uint32_t len;
	} nowhere[] = {{0xfff, 1},  {0xfff, 4},	     {0x10fe, 4},
		       {0x1100, 1}, {UINT64_MAX, 1}, {UINT64_MAX - 2, 8}};
	struct seen s = {0};
	struct bus b = {0};

	assert_int_equal(bus_add(&b, BUS_MMIO, 0x1000, 0x100, &ops, &s, NULL), 0);
	for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
		uint8_t data[8] = {0};

		bus_read(&b, BUS_MMIO, nowhere[i].addr, data, nowhere[i].len);
		for (uint32_t k = 0; k < nowhere[i].len; k++)
			assert_int_equal(data[k], 0xff);
		bus_write(&b, BUS_MMIO, nowhere[i].addr, data, nowhere[i].len);
	}
	assert_int_equal(s.reads + s.writes, 0);
}

static void test_overlapping_and_invalid_ranges_are_refused(void **state)
{
	struct seen s;
	struct bus b = {0};

	assert_int_equal(bus_add(&b, BUS_MMIO, 0x1000, 0x100, &ops, &s, NULL), 0);
	assert_int_equal(bus_add(&b, BUS_MMIO, 0x10ff, 1, &ops, &s, NULL), -EEXIST);
	assert_int_equal(bus_add(&b, BUS_MMIO, 0x0, 0x1001, &ops, &s, NULL), -EEXIST);
	assert_int_equal(bus_add(&b, BUS_MMIO, 0x2000, 0, &ops, &s, NULL), -EINVAL);
	assert_int_equal(bus_add(&b, BUS_MMIO, UINT64_MAX, 2, &ops, &s, NULL), -EINVAL);
}

static void test_number_of_devices_is_limited(void **state)
{
	struct seen s;
	struct bus b = {0};
	int rc = 0;

	for (uint64_t i = 0; i < 1000 && rc == 0; i++)
		rc = bus_add(&b, BUS_MMIO, i * 16, 16, &ops, &s, NULL);
	assert_int_equal(rc, -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_access_reaches_its_device),
		cmocka_unit_test(test_reads_outside_of_devices_return_ones),
		cmocka_unit_test(test_overlapping_and_invalid_ranges_are_refused),
		cmocka_unit_test(test_number_of_devices_is_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
