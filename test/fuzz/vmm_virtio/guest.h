// SPDX-License-Identifier: Apache-2.0
/*
 * A hostile guest whose doings are the fuzzer's input: register accesses, memory, descriptors,
 * kicks; and a normal start, so that mutations reach what lies behind it.
 */
#ifndef RAMET_FUZZ_GUEST_H
#define RAMET_FUZZ_GUEST_H

#include "../../unit/vmm_virtio/driver.h"

#define GUEST_MEM 65536u

struct guest {
	struct drv v;
	struct wire in; /* the input; reads past its end give zeros and turn bad */
	/* One thing that only this device's target knows how to do; may be NULL. */
	void (*special)(struct guest *g, uint8_t what);
	void *arg;
};

/* The device is attached already. Plays the rest of the input. */
void guest_play(struct guest *g);
/* If the input says so, begins with a restore of what it holds. */
void guest_maybe_restore(struct guest *g);
/* Some turns of the loop, with an end even where the guest keeps it busy. */
void guest_turn(struct guest *g);

#endif
