// SPDX-License-Identifier: Apache-2.0
/* The io_uring ring for the block device's I/O. */
#ifndef RAMET_VMM_VIRTIO_BLK_RING_H
#define RAMET_VMM_VIRTIO_BLK_RING_H

#include <liburing.h>

#include "base/err.h"

/*
 * Creates a ring for `entries` operations in flight. It can only read, write, sync and allocate on
 * open files: an attacker who has taken over the process can't use it to bypass the system call
 * filter.
 */
int blk_ring_init(struct io_uring *ring, unsigned entries, struct err *e);

#endif
