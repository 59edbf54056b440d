// SPDX-License-Identifier: Apache-2.0
/* Kernel limits of the guest that are too low for development, with the kernel's defaults. */
#ifndef RAMET_GUEST_SYSTEM_SYSCTL_H
#define RAMET_GUEST_SYSTEM_SYSCTL_H

#include <stdint.h>

/* Sets the limits for a guest with this much RAM. `root` is "/proc/sys". */
void sysctl_set_all(const char *root, uint64_t ram_bytes);

#endif
