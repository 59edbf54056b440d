// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/cmos.h"

#include <string.h>
#include <time.h>

#define CMOS_PORT 0x70 /* index, then data */

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
		return 0x26; /* no update in progress: the kernel would wait for its end */
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
	struct cmos *c = dev;
	struct timespec now;

	memset(data, 0xff, len);
	if (offset != 1)
		return;
	/* Not time(2): without a vDSO it is a system call, which the seccomp filter denies. */
	clock_gettime(CLOCK_REALTIME, &now);
	data[0] = cmos_value(__atomic_load_n(&c->index, __ATOMIC_RELAXED), now.tv_sec);
}

/* Stores the index. Writes to the time are ignored, since the clock shows the host's time. */
static void cmos_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct cmos *c = dev;

	if (offset == 0) /* bit 7 is the NMI mask */
		__atomic_store_n(&c->index, data[0] & 0x7f, __ATOMIC_RELAXED);
}

static const struct bus_ops cmos_ops = {cmos_read, cmos_write};

int cmos_add(struct cmos *c, struct bus *bus, struct err *e)
{
	return bus_add(bus, BUS_PORT, CMOS_PORT, 2, &cmos_ops, c, e);
}

void cmos_save(const struct cmos *c, struct wire *w)
{
	wire_put_u8(w, c->index);
}

void cmos_restore(struct cmos *c, struct wire *r)
{
	c->index = wire_get_u8(r) & 0x7f;
}
