// SPDX-License-Identifier: Apache-2.0
/*
 * Owned file descriptors: they are closed at the end of their scope, and handing one over is
 * visible. -1 means no descriptor.
 */
#ifndef RAMET_BASE_FD_H
#define RAMET_BASE_FD_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Closes *fd if it is open and sets it to -1. Preserves errno. */
static inline void close_fd(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

/* Hands over the descriptor: the caller owns the result, and *fd becomes -1. */
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

static inline void free_ptr(void *p)
{
	free(*(void **)p);
}

#define scoped_fd   __attribute__((cleanup(close_fd)))
#define scoped_free __attribute__((cleanup(free_ptr)))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
