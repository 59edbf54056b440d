// SPDX-License-Identifier: Apache-2.0
/*
 * The generation of the virtual machine (proto/platform.h): an id that differs in each copy, and
 * the parts of the guest that make themselves unique when the id changes.
 */
#ifndef RAMET_VMM_DEV_GENERATION_H
#define RAMET_VMM_DEV_GENERATION_H

#include "base/err.h"
#include "base/wire.h"
#include "proto/platform.h"
#include "vmm/dev/bus.h"

/* Called on a vCPU thread when `who`, one of PLATFORM_GENERATION_*, has made itself unique. */
typedef void generation_fn(void *arg, unsigned who);

/* All fields are private to generation.c. */
struct generation {
	generation_fn *on_unique;
	void *arg;
	unsigned promised;
	uint8_t registers[PLATFORM_GENERATION_LEN]; /* not changed while vCPUs run */
};

/* Puts the device on the bus, with a new id. */
int generation_add(struct generation *g, struct bus *bus, generation_fn *on_unique, void *arg,
		   struct err *e);

/* Returns the PLATFORM_GENERATION_* bits of the parts that promised to make themselves unique. */
unsigned generation_promised(const struct generation *g);

/* Saves the promises. The id is not part of a snapshot. The vCPUs must be parked. */
void generation_save(const struct generation *g, struct wire *w);
/* Restores the promises and draws a new id. */
void generation_restore(struct generation *g, struct wire *r);

#endif
