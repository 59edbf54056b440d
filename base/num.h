// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_BASE_NUM_H
#define RAMET_BASE_NUM_H

#include <stdint.h>

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

#endif
