// SPDX-License-Identifier: Apache-2.0
#include "guest/send.h"

#include <errno.h>
#include <sys/socket.h>

/* A packet of this size needs, with the kernel's header, at most four contiguous pages. For so few
 * pages, the kernel waits instead of failing. */
#define ALWAYS_ROOM 15360u

ssize_t send_some(int fd, const void *bytes, size_t len)
{
	ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

	if (n < 0 && errno == ENOMEM && len > ALWAYS_ROOM)
		n = send(fd, bytes, ALWAYS_ROOM, MSG_NOSIGNAL);
	return n;
}
