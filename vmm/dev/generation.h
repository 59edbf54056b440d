// SPDX-License-Identifier: Apache-2.0
/*
 * The generation of the virtual machine (proto/platform.h): an id that differs in each copy, and
 * the parts of the guest that make themselves unique when the id changes.
 */
#ifndef RAMET_VMM_DEV_GENERATION_H
#define RAMET_VMM_DEV_GENERATION_H

#include "base/err.h"
#include "base/wire.h"
#include "vmm/dev/bus.h"

struct generation;

/* Called on a vCPU thread when `who`, one of PLATFORM_GENERATION_*, has made itself unique. */
typedef void generation_fn(void *arg, unsigned who);

int generation_new(struct generation **out, struct bus *bus, generation_fn *on_unique, void *arg,
		   struct err *e);
void generation_free(struct generation *g);

/* Returns the PLATFORM_GENERATION_* bits of the parts that promised to make themselves unique. */
unsigned generation_promised(const struct generation *g);

/* Saves the promises. The id is not part of a snapshot. The vCPUs must be parked. */
void generation_save(const struct generation *g, struct wire *w);
/* Restores the promises and draws a new id. */
void generation_restore(struct generation *g, struct wire *r);

#endif
