// SPDX-License-Identifier: Apache-2.0
/*
 * A port to which a kernel writes as to a 16550 serial port that is always ready: its text goes to
 * this process's log, line by line. It has no interrupt and no receiver, so Linux uses it with
 * earlyprintk=serial only. It is for debugging a kernel that does not boot; every byte costs an
 * exit. It is not saved: a snapshot of a VM with a serial port is restored without one.
 */
#ifndef RAMET_VMM_DEV_SERIAL_H
#define RAMET_VMM_DEV_SERIAL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"
#include "vmm/dev/bus.h"

#define SERIAL_PORT	0x3f8
#define SERIAL_LINE_MAX 200

/* All fields are private to serial.c. */
struct serial {
	pthread_mutex_t lock;
	uint8_t line_control;
	char text[SERIAL_LINE_MAX + 1];
	size_t len;
};

/* Puts the port on the bus. */
int serial_add(struct serial *s, struct bus *bus, struct err *e);

#endif
