// SPDX-License-Identifier: Apache-2.0
/*
 * A hostile guest whose actions come from the fuzzer's input: register accesses, memory writes,
 * descriptors, kicks. A normal driver start is one action, so that mutations reach the code that
 * depends on it.
 */
#ifndef RAMET_FUZZ_GUEST_H
#define RAMET_FUZZ_GUEST_H

#include "../../unit/vmm_virtio/driver.h"

#define GUEST_MEM 65536u

struct guest {
	struct drv v;
	struct wire in; /* the input; reads beyond its end return zeros and set `bad` */
	/* Performs an action that is specific to the device of the target; may be NULL. */
	void (*special)(struct guest *g, uint8_t what);
	void *arg;
};

/* Executes the rest of the input. The device must be attached. */
void guest_play(struct guest *g);
/* If the input says so, restores the device from a state in the input first. */
void guest_maybe_restore(struct guest *g);
/* Runs the loop a limited number of times, even if the guest keeps it busy. */
void guest_turn(struct guest *g);

#endif
