// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/legacy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/platform.h"

#define CMOS_PORT      0x70 /* index, then data */
#define KEYBOARD_PORT  0x64 /* status and command */
#define KEYBOARD_RESET 0xfe

enum cmos_register {
	CMOS_SECONDS = 0,
	CMOS_MINUTES = 2,
	CMOS_HOURS = 4,
	CMOS_WEEKDAY = 6,
	CMOS_DAY = 7,
	CMOS_MONTH = 8,
	CMOS_YEAR = 9,
	CMOS_STATUS_A = 10,
	CMOS_STATUS_B = 11,
	CMOS_STATUS_D = 13,
	CMOS_CENTURY = 50,
};

struct legacy {
	legacy_fn *on_request;
	void *arg;
	uint8_t cmos_index; /* one vCPU at a time uses it; the guest holds a lock of its own */
};

static uint8_t bcd(int n)
{
	return (uint8_t)(n / 10 % 10 << 4 | n % 10);
}

static uint8_t cmos_value(uint8_t index, time_t now)
{
	struct tm t = {0};

	gmtime_r(&now, &t);
	switch (index) {
	case CMOS_SECONDS:
		return bcd(t.tm_sec);
	case CMOS_MINUTES:
		return bcd(t.tm_min);
	case CMOS_HOURS:
		return bcd(t.tm_hour);
	case CMOS_WEEKDAY:
		return bcd(t.tm_wday + 1);
	case CMOS_DAY:
		return bcd(t.tm_mday);
	case CMOS_MONTH:
		return bcd(t.tm_mon + 1);
	case CMOS_YEAR:
		return bcd(t.tm_year % 100);
	case CMOS_CENTURY:
		return bcd(19 + t.tm_year / 100);
	case CMOS_STATUS_A:
		return 0x26; /* no update in progress: a kernel would wait for its end */
	case CMOS_STATUS_B:
		return 0x02; /* 24 hours, BCD */
	case CMOS_STATUS_D:
		return 0x80; /* the battery is good */
	default:
		return 0;
	}
}

static void cmos_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	struct legacy *l = dev;
	struct timespec now;

	memset(data, 0xff, len);
	if (offset != 1)
		return;
	/* Not time(2): without a vDSO it is a system call that the filter does not know. */
	clock_gettime(CLOCK_REALTIME, &now);
	data[0] = cmos_value(__atomic_load_n(&l->cmos_index, __ATOMIC_RELAXED), now.tv_sec);
}

/* The time is the host's: writes to it vanish. */
static void cmos_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct legacy *l = dev;

	if (offset == 0) /* bit 7 is the NMI mask */
		__atomic_store_n(&l->cmos_index, data[0] & 0x7f, __ATOMIC_RELAXED);
}

static void keyboard_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	memset(data, 0, len); /* ready for a command, no key waits */
}

static void keyboard_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct legacy *l = dev;

	if (data[0] == KEYBOARD_RESET)
		l->on_request(l->arg, LEGACY_RESET);
}

static void power_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	memset(data, 0, len);
}

static void power_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct legacy *l = dev;

	if (data[0] == PLATFORM_POWER_OFF)
		l->on_request(l->arg, LEGACY_POWER_OFF);
}

static const struct bus_ops cmos_ops = {cmos_read, cmos_write};
static const struct bus_ops keyboard_ops = {keyboard_read, keyboard_write};
static const struct bus_ops power_ops = {power_read, power_write};

int legacy_new(struct legacy **out, struct bus *bus, legacy_fn *on_request, void *arg,
	       struct err *e)
{
	struct legacy *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return err_set(e, ENOMEM, "make the legacy ports");
	l->on_request = on_request;
	l->arg = arg;
	r = bus_add(bus, BUS_PORT, CMOS_PORT, 2, &cmos_ops, l, e);
	if (!r)
		r = bus_add(bus, BUS_PORT, KEYBOARD_PORT, 1, &keyboard_ops, l, e);
	if (!r)
		r = bus_add(bus, BUS_PORT, PLATFORM_POWER_PORT, 1, &power_ops, l, e);
	if (r) {
		free(l);
		return r;
	}
	*out = l;
	return 0;
}

void legacy_free(struct legacy *l)
{
	free(l);
}

void legacy_save(const struct legacy *l, struct wire *w)
{
	wire_put_u8(w, l->cmos_index);
}

void legacy_restore(struct legacy *l, struct wire *r)
{
	l->cmos_index = wire_get_u8(r) & 0x7f;
}
