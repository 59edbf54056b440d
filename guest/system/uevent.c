// SPDX-License-Identifier: Apache-2.0
#include "guest/system/system.h"

#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "guest/loop.h"

static int open_uevents(void)
{
	struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = 1};
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			NETLINK_KOBJECT_UEVENT);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		close_fd(&fd);
	return fd;
}

bool uevent_wait(bool (*is_there)(const void *arg), const void *arg, int ms)
{
	char event[4096];

	if (is_there(arg))
		return true;
	scoped_fd int fd = open_uevents();
	int64_t end = loop_now_ms() + ms;
	while (!is_there(arg)) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = end - loop_now_ms();
		if (left <= 0 || poll(&p, 1, (int)left) < 0)
			return false;
		while (fd >= 0 && recv(fd, event, sizeof(event), 0) > 0)
			;
	}
	return true;
}
