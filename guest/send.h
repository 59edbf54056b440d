// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_SEND_H
#define RAMET_GUEST_SEND_H

#include <stddef.h>
#include <sys/types.h>

/*
 * Does the same as send(2), without SIGPIPE. vsock sends packets of up to 64 KiB, for which it
 * needs 128 KiB of contiguous memory (virtio_transport_alloc_skb). A guest whose memory is full of
 * cached files may not have that. Then this sends less at a time: for such a small packet, the
 * kernel waits until it has memory.
 */
ssize_t send_some(int fd, const void *bytes, size_t len);

#endif
