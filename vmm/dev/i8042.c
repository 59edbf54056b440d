// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/i8042.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/platform.h"

#define I8042_PORT	  0x64 /* status and command */
#define I8042_PULSE_RESET 0xfe

struct i8042 {
	i8042_fn *on_request;
	void *arg;
};

static void i8042_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	memset(data, 0, len); /* ready for a command; no key was pressed */
}

static void i8042_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct i8042 *k = dev;

	if (data[0] == I8042_PULSE_RESET)
		k->on_request(k->arg, I8042_RESET);
}

static void power_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	memset(data, 0, len);
}

static void power_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct i8042 *k = dev;

	if (data[0] == PLATFORM_POWER_OFF)
		k->on_request(k->arg, I8042_POWER_OFF);
}

static const struct bus_ops i8042_ops = {i8042_read, i8042_write};
static const struct bus_ops power_ops = {power_read, power_write};

int i8042_new(struct i8042 **out, struct bus *bus, i8042_fn *on_request, void *arg, struct err *e)
{
	struct i8042 *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return err_set(e, ENOMEM, "make the i8042 and power ports");
	k->on_request = on_request;
	k->arg = arg;
	r = bus_add(bus, BUS_PORT, I8042_PORT, 1, &i8042_ops, k, e);
	if (!r)
		r = bus_add(bus, BUS_PORT, PLATFORM_POWER_PORT, 1, &power_ops, k, e);
	if (r) {
		free(k);
		return r;
	}
	*out = k;
	return 0;
}

void i8042_free(struct i8042 *k)
{
	free(k);
}
