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

#endif
