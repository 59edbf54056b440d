// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_SEND_H
#define RAMET_GUEST_SEND_H

#include <stddef.h>
#include <sys/types.h>

/*
 * As send(2), without SIGPIPE. vsock makes one packet of up to 64 KiB, for which it needs 128 KiB
 * of memory in one piece (virtio_transport_alloc_skb). A guest whose memory is full of cached files
 * may have no such piece; then less is sent, for which there is always room.
 */
ssize_t send_some(int fd, const void *bytes, size_t len);

#endif
