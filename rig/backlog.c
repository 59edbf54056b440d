// SPDX-License-Identifier: Apache-2.0
/*
 * Replaces listen() in QEMU, by LD_PRELOAD, with one that has a larger backlog. QEMU's user network
 * listens with a backlog of one, so most clients that connect at the same moment would be reset.
 * This library must not link a C library, since QEMU brings its own.
 */
#include <sys/syscall.h>

#define BACKLOG 4096 /* the kernel limits it to net.core.somaxconn */

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
