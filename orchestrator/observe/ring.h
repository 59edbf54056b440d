// SPDX-License-Identifier: Apache-2.0
/* The samples of one sandbox: the newest USAGE_KEPT. The ring grows with their number, to about 20
 * KiB. */
#ifndef RAMET_ORCHESTRATOR_OBSERVE_RING_H
#define RAMET_ORCHESTRATOR_OBSERVE_RING_H

#include "orchestrator/observe/usage.h"

/* Zeroed: empty. */
struct usage_ring {
	struct usage_sample *samples;
	unsigned first, n, room; /* `first` is not 0 only when the ring is full */
};

/* Returns the share that `used_ms` of CPU time have of what `vcpus` CPUs offer in `of_ms` (not 0),
 * in the unit of usage_sample.cpu. */
uint32_t usage_cpu(uint64_t used_ms, uint64_t of_ms, uint32_t vcpus);

void usage_ring_add(struct usage_ring *ring, const struct usage_sample *sample);
/* Returns the sample `i`, from 0, the oldest, to n - 1. */
const struct usage_sample *usage_ring_at(const struct usage_ring *ring, unsigned i);
/* Returns a copy of the samples that the query selects, oldest first, which the caller frees, and
 * sets *n to their number. */
struct usage_sample *usage_ring_select(const struct usage_ring *ring,
				       const struct usage_query *query, unsigned *n);
void usage_ring_free(struct usage_ring *ring);

#endif
