// SPDX-License-Identifier: Apache-2.0
/*
 * The generation of the virtual machine (proto/platform.h): an id that is another one in each copy,
 * and who in the guest makes itself unique when it changes.
 */
#ifndef RAMET_VMM_DEV_GENERATION_H
#define RAMET_VMM_DEV_GENERATION_H

#include "base/err.h"
#include "base/wire.h"
#include "vmm/dev/bus.h"

struct generation;

/* The guest wrote `who`, one of PLATFORM_GENERATION_*; called on a vCPU thread. */
typedef void generation_fn(void *arg, unsigned who);

int generation_new(struct generation **out, struct bus *bus, generation_fn *on_unique, void *arg,
		   struct err *e);
void generation_free(struct generation *g);

/* Returns the bits PLATFORM_GENERATION_* of those that make themselves unique in each copy. */
unsigned generation_promised(const struct generation *g);

/* Saves who promised; the id stays out of images. vCPUs must stand still. */
void generation_save(const struct generation *g, struct wire *w);
/* Makes the next generation of the one that was saved. */
void generation_restore(struct generation *g, struct wire *r);

#endif
