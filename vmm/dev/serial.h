// SPDX-License-Identifier: Apache-2.0
/*
 * An output-only 16550 serial port: what the guest writes goes to this process's log, line by line.
 * It is for debugging a kernel that does not boot; every byte costs an exit. It is not saved: a
 * snapshot of a VM with a serial port is restored without one.
 */
#ifndef RAMET_VMM_DEV_SERIAL_H
#define RAMET_VMM_DEV_SERIAL_H

#include "base/err.h"
#include "vmm/dev/bus.h"
#include "vmm/kvm/irq.h"

#define SERIAL_PORT 0x3f8
#define SERIAL_GSI  4

struct serial;

/* `line` must outlive it. */
int serial_new(struct serial **out, struct bus *bus, const struct irq_line *line, struct err *e);
void serial_free(struct serial *s);

#endif
