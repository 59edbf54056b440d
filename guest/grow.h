// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_GROW_H
#define RAMET_GUEST_GROW_H

#include <stdint.h>

#include "base/err.h"

/*
 * Grows the root file system (ext4) to the size of its disk, of which the kernel may not know yet
 * that it has `bytes`: that is waited for, up to 5 s (-ETIMEDOUT). 0 or -errno; 0 also when there
 * is nothing to do.
 */
int grow_root(uint64_t bytes, struct err *e);

#endif
