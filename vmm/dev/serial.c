// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/serial.h"

#include <string.h>

#include "base/log.h"

/* Offsets of the 16550's registers. */
enum { DATA = 0, LINE_CONTROL = 3, LINE_STATUS = 5, SERIAL_PORTS = 8 };

#define LCR_DLAB  0x80 /* the data register is part of the divisor of the rate */
#define LSR_READY 0x60 /* the transmitter is always empty, the receiver has no data */

static void put_char(struct serial *s, char c)
{
	if (c != '\n' && c != '\r')
		s->text[s->len++] = c;
	if (!s->len || (c != '\n' && s->len < SERIAL_LINE_MAX))
		return;
	s->text[s->len] = '\0';
	log_info("serial: %s", s->text);
	s->len = 0;
}

static void on_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	struct serial *s = dev;

	memset(data, 0, len);
	pthread_mutex_lock(&s->lock);
	data[0] = offset == LINE_STATUS ? LSR_READY : offset == LINE_CONTROL ? s->line_control : 0;
	pthread_mutex_unlock(&s->lock);
}

static void on_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct serial *s = dev;

	pthread_mutex_lock(&s->lock);
	if (offset == LINE_CONTROL)
		s->line_control = data[0];
	else if (offset == DATA && !(s->line_control & LCR_DLAB))
		put_char(s, (char)data[0]);
	pthread_mutex_unlock(&s->lock);
}

static const struct bus_ops serial_ops = {on_read, on_write};

int serial_add(struct serial *s, struct bus *bus, struct err *e)
{
	*s = (struct serial){.lock = PTHREAD_MUTEX_INITIALIZER};
	return bus_add(bus, BUS_PORT, SERIAL_PORT, SERIAL_PORTS, &serial_ops, s, e);
}
