// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/i8042.h"

#include <string.h>

#include "proto/platform.h"

#define I8042_PORT	  0x64 /* status and command */
#define I8042_PULSE_RESET 0xfe

static void zeros_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	memset(data, 0, len); /* ready for a command; no key was pressed */
}

static void i8042_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct i8042 *k = dev;

	if (data[0] == I8042_PULSE_RESET)
		k->on_request(k->arg, I8042_RESET);
}

static void power_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct i8042 *k = dev;

	if (data[0] == PLATFORM_POWER_OFF)
		k->on_request(k->arg, I8042_POWER_OFF);
}

static const struct bus_ops i8042_ops = {zeros_read, i8042_write};
static const struct bus_ops power_ops = {zeros_read, power_write};

int i8042_add(struct i8042 *k, struct bus *bus, i8042_fn *on_request, void *arg, struct err *e)
{
	int r;

	*k = (struct i8042){.on_request = on_request, .arg = arg};
	r = bus_add(bus, BUS_PORT, I8042_PORT, 1, &i8042_ops, k, e);
	return r ? r : bus_add(bus, BUS_PORT, PLATFORM_POWER_PORT, 1, &power_ops, k, e);
}
