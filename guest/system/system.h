// SPDX-License-Identifier: Apache-2.0
/*
 * Changes that the agent makes to the guest as a whole. A table, so that tests change nothing on
 * the machine they run on and can make each step fail.
 */
#ifndef RAMET_GUEST_SYSTEM_SYSTEM_H
#define RAMET_GUEST_SYSTEM_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Each returns 0 or -errno; the two clocks return ns since 1970. */
struct system_ops {
	int (*add_entropy)(const void *bytes, size_t len); /* credits it and reseeds the CRNG */
	int64_t (*realtime_ns)(void);
	int64_t (*host_realtime_ns)(void); /* -errno where the kernel does not know it */
	int (*set_realtime)(int64_t ns);
	int (*set_hostname)(const char *name);
	int (*renew_boot_id)(void);
	int (*reset_tcp)(void); /* to the outside; logs what fails */
	/* Tells the VMM that this guest is unique. The first call announces that every copy will do
	 * so. */
	int (*confirm_unique)(void);
	int (*grow_root)(uint64_t bytes, struct err *e);
	int (*sync)(void);
	int (*power_off)(void); /* asks init */
};

extern const struct system_ops system_real;
extern const struct system_ops system_dry; /* only logs what it would do */

#endif
