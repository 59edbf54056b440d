// SPDX-License-Identifier: Apache-2.0
/*
 * Loaded into QEMU before its libraries: its user network listens for one connection at a time, and
 * a crowd of clients that connect at the same moment would be reset. Here the kernel keeps as many
 * as it keeps for anybody. Uses no C library: QEMU has its own.
 */
#include <sys/syscall.h>

#define BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */

int listen(int fd, int backlog);

int listen(int fd, int backlog)
{
	long ret;

	(void)backlog;
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(SYS_listen), "D"(fd), "S"(BACKLOG)
			 : "rcx", "r11", "memory");
	return ret < 0 ? -1 : 0;
}
