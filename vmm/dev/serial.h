// SPDX-License-Identifier: Apache-2.0
/*
 * A 16550 serial port that only talks: what the guest writes goes to this process's log, line by
 * line. For looking at a kernel that does not come up; every byte costs an exit. Not saved: an
 * image of a VM with a serial port is restored without one.
 */
#ifndef RAMET_VMM_DEV_SERIAL_H
#define RAMET_VMM_DEV_SERIAL_H

#include "base/err.h"
#include "vmm/dev/bus.h"
#include "vmm/kvm/irq.h"

#define SERIAL_PORT 0x3f8
#define SERIAL_GSI  4

struct serial;

/* `line` outlives it. */
int serial_new(struct serial **out, struct bus *bus, const struct irq_line *line, struct err *e);
void serial_free(struct serial *s);

#endif
