// SPDX-License-Identifier: Apache-2.0
/*
 * Clocks that a test can move: replaces clock_gettime and gettimeofday of the program that includes
 * this. If the environment variable TEST_CLOCK names a file, the offsets are the two numbers in it,
 * so that another process can change them at any time. time() and waits in the kernel are
 * unchanged.
 */
#ifndef RAMET_TEST_MOVED_CLOCK_H
#define RAMET_TEST_MOVED_CLOCK_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static struct moved_clock {
	volatile int64_t real_ms, monotonic_ms;
} not_moved, *moved_clock = &not_moved;

__attribute__((constructor)) static void moved_clock_open(void)
{
	const char *path = getenv("TEST_CLOCK");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *at;

	if (!path)
		return;
	at = mmap(NULL, sizeof(*moved_clock), PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		abort();
	moved_clock = at;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	int64_t ms = id == CLOCK_REALTIME ? moved_clock->real_ms : moved_clock->monotonic_ms;
	long ret = syscall(SYS_clock_gettime, id, t);
	int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + ms * 1000000;

	t->tv_sec = ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
	return (int)ret;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec now;
	int ret = clock_gettime(CLOCK_REALTIME, &now);

	(void)zone;
	*t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	return ret;
}

#endif
