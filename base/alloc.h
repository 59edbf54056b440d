// SPDX-License-Identifier: Apache-2.0
/*
 * Memory for the service's own small objects. There is no good answer to a client when a few
 * hundred bytes are not to be had: the process ends, is started again and adopts its VMs. What a
 * client sizes (code, metadata, output) is not taken from here but checked where it is copied.
 */
#ifndef RAMET_BASE_ALLOC_H
#define RAMET_BASE_ALLOC_H

#include <stdlib.h>

#include "base/log.h"

/* Zeroed; never NULL. */
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
