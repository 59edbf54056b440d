// SPDX-License-Identifier: Apache-2.0
/* The io_uring ring that the block device does its I/O with. */
#ifndef RAMET_VMM_VIRTIO_BLK_RING_H
#define RAMET_VMM_VIRTIO_BLK_RING_H

#include <liburing.h>

#include "base/err.h"

/*
 * A ring for `entries` operations in flight. It can do nothing but read, write, sync and allocate
 * on open files: a process that is broken into and has this ring can't use it to get around its
 * system call filter.
 */
int blk_ring_init(struct io_uring *ring, unsigned entries, struct err *e);

#endif
