// SPDX-License-Identifier: Apache-2.0
#include "vmm/dev/serial.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define SERIAL_PORTS 8
#define LINE_MAX     200

/* Offsets of the 16550's registers. While DLAB is set, two others replace the first two. */
enum {
	DATA,
	INTERRUPT_ENABLE,
	INTERRUPT_ID,
	LINE_CONTROL,
	MODEM_CONTROL,
	LINE_STATUS,
	MODEM_STATUS,
	SCRATCH
};

#define LCR_DLAB  0x80
#define MCR_LOOP  0x10
#define IER_EMPTY 0x02 /* interrupt when the transmitter is empty */
#define IIR_NONE  0x01
#define IIR_EMPTY 0x02
#define IIR_FIFO  0xc0
#define LSR_READY 0x60 /* the transmitter is always empty, the receiver has no data */
#define MSR_PEER  0xb0 /* carrier, data set ready, clear to send */

struct serial {
	pthread_mutex_t lock;
	const struct irq_line *line;
	uint8_t regs[SERIAL_PORTS]; /* as written */
	uint8_t divisor[2];
	bool fifo, empty_pending;
	char text[LINE_MAX + 1];
	size_t len;
};

static void put_char(struct serial *s, char c)
{
	if (c != '\n' && c != '\r')
		s->text[s->len++] = c;
	if (!s->len || (c != '\n' && s->len < LINE_MAX))
		return;
	s->text[s->len] = '\0';
	log_info("serial: %s", s->text);
	s->len = 0;
}

/* Data is sent immediately, so a driver that waits for an empty transmitter is notified at once. */
static void room_again(struct serial *s)
{
	if (!(s->regs[INTERRUPT_ENABLE] & IER_EMPTY))
		return;
	s->empty_pending = true;
	irq_line_raise(s->line);
}

static uint8_t interrupt_id(struct serial *s)
{
	uint8_t id = s->empty_pending ? IIR_EMPTY : IIR_NONE;

	s->empty_pending = false; /* a read acknowledges the interrupt */
	return id | (s->fifo ? IIR_FIFO : 0);
}

/* In loopback the modem's outputs are its inputs. */
static uint8_t modem_status(const struct serial *s)
{
	uint8_t mcr = s->regs[MODEM_CONTROL];

	if (!(mcr & MCR_LOOP))
		return MSR_PEER;
	return (uint8_t)((mcr & 0x2) << 3 | (mcr & 0x1) << 5 | (mcr & 0xc) << 4);
}

static uint8_t read_register(struct serial *s, unsigned reg)
{
	bool dlab = s->regs[LINE_CONTROL] & LCR_DLAB;

	switch (reg) {
	case DATA:
		return dlab ? s->divisor[0] : 0;
	case INTERRUPT_ENABLE:
		return dlab ? s->divisor[1] : s->regs[INTERRUPT_ENABLE];
	case INTERRUPT_ID:
		return interrupt_id(s);
	case LINE_STATUS:
		return LSR_READY;
	case MODEM_STATUS:
		return modem_status(s);
	default:
		return s->regs[reg];
	}
}

static void write_register(struct serial *s, unsigned reg, uint8_t value)
{
	if (reg <= INTERRUPT_ENABLE && (s->regs[LINE_CONTROL] & LCR_DLAB)) {
		s->divisor[reg] = value;
		return;
	}
	switch (reg) {
	case DATA:
		put_char(s, (char)value);
		room_again(s);
		break;
	case INTERRUPT_ENABLE:
		s->regs[reg] = value & 0x0f;
		room_again(s);
		break;
	case INTERRUPT_ID: /* a write goes to the FIFO control register */
		s->fifo = value & 1;
		break;
	case LINE_STATUS:
	case MODEM_STATUS:
		break;
	default:
		s->regs[reg] = value;
	}
}

static void on_read(void *dev, uint64_t offset, uint8_t *data, uint32_t len)
{
	struct serial *s = dev;

	memset(data, 0xff, len);
	pthread_mutex_lock(&s->lock);
	data[0] = read_register(s, (unsigned)offset);
	pthread_mutex_unlock(&s->lock);
}

static void on_write(void *dev, uint64_t offset, const uint8_t *data, uint32_t len)
{
	struct serial *s = dev;

	pthread_mutex_lock(&s->lock);
	write_register(s, (unsigned)offset, data[0]);
	pthread_mutex_unlock(&s->lock);
}

static const struct bus_ops serial_ops = {on_read, on_write};

int serial_new(struct serial **out, struct bus *bus, const struct irq_line *line, struct err *e)
{
	struct serial *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, ENOMEM, "make the serial port");
	s->line = line;
	pthread_mutex_init(&s->lock, NULL);
	r = bus_add(bus, BUS_PORT, SERIAL_PORT, SERIAL_PORTS, &serial_ops, s, e);
	if (r) {
		serial_free(s);
		return r;
	}
	*out = s;
	return 0;
}

void serial_free(struct serial *s)
{
	if (!s)
		return;
	pthread_mutex_destroy(&s->lock);
	free(s);
}
