// SPDX-License-Identifier: Apache-2.0
/* The CMOS clock (MC146818) at ports 0x70 and 0x71, which a kernel without ACPI reads at boot. */
#ifndef RAMET_VMM_DEV_CMOS_H
#define RAMET_VMM_DEV_CMOS_H

#include "base/err.h"
#include "base/wire.h"
#include "vmm/dev/bus.h"

struct cmos {
	uint8_t index; /* used by one vCPU at a time: the guest's kernel holds a lock */
};

/* Puts the zeroed clock on the bus. */
int cmos_add(struct cmos *c, struct bus *bus, struct err *e);

void cmos_save(const struct cmos *c, struct wire *w);
void cmos_restore(struct cmos *c, struct wire *r);

#endif
