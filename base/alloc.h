// SPDX-License-Identifier: Apache-2.0
/*
 * Memory for the service's own small objects. If a few hundred bytes can't be allocated, no useful
 * answer to a client is possible: the process ends, is restarted and adopts its VMs. Buffers whose
 * size a client chooses (code, metadata, output) are not allocated here; their allocation is
 * checked where they are copied.
 */
#ifndef RAMET_BASE_ALLOC_H
#define RAMET_BASE_ALLOC_H

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Returns zeroed memory, never NULL. */
static inline void *must_alloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p) {
		log_error("out of memory (%zu bytes)", size);
		abort();
	}
	return p;
}

/* Returns a copy of the text, never NULL. */
static inline char *must_copy(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(must_alloc(size), text, size);
}

#endif
