// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_SYSTEM_GROW_H
#define RAMET_GUEST_SYSTEM_GROW_H

#include <stdint.h>

#include "base/err.h"

/*
 * Grows the root file system (ext4) to the size of its disk. Waits up to 5 s until the kernel sees
 * that the disk has `bytes` (-ETIMEDOUT). Returns 0 or -errno; 0 also when there is nothing to do.
 */
int grow_root(uint64_t bytes, struct err *e);

#endif
