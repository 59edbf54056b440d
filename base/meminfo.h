// SPDX-License-Identifier: Apache-2.0
/* The host's memory, as /proc/meminfo reports it. */
#ifndef RAMET_BASE_MEMINFO_H
#define RAMET_BASE_MEMINFO_H

#include <stdbool.h>
#include <stdint.h>

struct meminfo {
	uint64_t total, available; /* bytes */
};

/* Reads a file such as /proc/meminfo. Returns false, with *out zero, when it cannot be read. */
bool meminfo_read(const char *path, struct meminfo *out);
/* Returns true when another VM would push the host into swapping or out of memory. */
bool meminfo_is_low(const struct meminfo *m);

#endif
