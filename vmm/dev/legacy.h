// SPDX-License-Identifier: Apache-2.0
/*
 * The few I/O ports of an old PC that a kernel without ACPI still touches: the clock chip, the
 * keyboard controller (whose one use is to reset the machine) and the power port.
 */
#ifndef RAMET_VMM_DEV_LEGACY_H
#define RAMET_VMM_DEV_LEGACY_H

#include "base/err.h"
#include "base/wire.h"
#include "vmm/dev/bus.h"

enum legacy_request { LEGACY_RESET, LEGACY_POWER_OFF };

/* The guest asked for it; called on a vCPU thread. */
typedef void legacy_fn(void *arg, enum legacy_request what);

struct legacy;

int legacy_new(struct legacy **out, struct bus *bus, legacy_fn *on_request, void *arg,
	       struct err *e);
void legacy_free(struct legacy *l);

void legacy_save(const struct legacy *l, struct wire *w);
void legacy_restore(struct legacy *l, struct wire *r);

#endif
