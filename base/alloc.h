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

static inline void *must_have(void *p, size_t size)
{
	if (!p) {
		log_error("out of memory (%zu bytes)", size);
		abort();
	}
	return p;
}

/* Returns zeroed memory, never NULL. */
static inline void *must_alloc(size_t size)
{
	return must_have(calloc(1, size), size);
}

/* Works like realloc, but never returns NULL: memory that was added is not zeroed. */
static inline void *must_realloc(void *p, size_t size)
{
	return must_have(realloc(p, size), size);
}

/* Returns a copy of the text, never NULL. */
static inline char *must_copy(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(must_alloc(size), text, size);
}

#endif
