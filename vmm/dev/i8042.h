// SPDX-License-Identifier: Apache-2.0
/*
 * The two ports by which the guest ends itself: the i8042 keyboard controller, whose reset command
 * is its only use here, and the power-off port (PLATFORM_POWER_PORT). Neither has state to save.
 */
#ifndef RAMET_VMM_DEV_I8042_H
#define RAMET_VMM_DEV_I8042_H

#include "base/err.h"
#include "vmm/dev/bus.h"

enum i8042_request { I8042_RESET, I8042_POWER_OFF };

/* Called on a vCPU thread when the guest requests a reset or a power-off. */
typedef void i8042_fn(void *arg, enum i8042_request what);

struct i8042 {
	i8042_fn *on_request;
	void *arg;
};

/* Puts both ports on the bus. */
int i8042_add(struct i8042 *k, struct bus *bus, i8042_fn *on_request, void *arg, struct err *e);

#endif
