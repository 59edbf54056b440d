// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/observe/ring.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"

#define FIRST_ROOM 6 /* a minute */

uint32_t usage_cpu(uint64_t used_ms, uint64_t of_ms, uint32_t vcpus)
{
	uint64_t share = used_ms * 10000 / (of_ms * vcpus);

	return min_u32(share, USAGE_CPU_NONE - 1);
}

/* Doubles the room, up to USAGE_KEPT. */
static void grow(struct usage_ring *ring)
{
	ring->room = ring->room ? min_u32(2 * ring->room, USAGE_KEPT) : FIRST_ROOM;
	ring->samples = must_realloc(ring->samples, ring->room * sizeof(*ring->samples));
}

void usage_ring_add(struct usage_ring *ring, const struct usage_sample *sample)
{
	if (ring->n == ring->room && ring->room < USAGE_KEPT)
		grow(ring);
	if (ring->n < ring->room) {
		ring->samples[ring->n++] = *sample;
		return;
	}
	ring->samples[ring->first] = *sample;
	ring->first = (ring->first + 1) % ring->room;
}

const struct usage_sample *usage_ring_at(const struct usage_ring *ring, unsigned i)
{
	assert(i < ring->n);
	return &ring->samples[(ring->first + i) % ring->room];
}

struct usage_sample *usage_ring_select(const struct usage_ring *ring,
				       const struct usage_query *query, unsigned *n)
{
	struct usage_sample *out = must_alloc((ring->n + 1) * sizeof(*out));
	unsigned found = 0;

	for (unsigned i = 0; i < ring->n; i++) {
		const struct usage_sample *each = usage_ring_at(ring, i);

		if ((!query->since_ms || each->at_ms >= query->since_ms) &&
		    (!query->until_ms || each->at_ms <= query->until_ms))
			out[found++] = *each;
	}
	*n = found < query->most ? found : query->most;
	memmove(out, out + found - *n, *n * sizeof(*out));
	return out;
}

void usage_ring_free(struct usage_ring *ring)
{
	free(ring->samples);
	*ring = (struct usage_ring){0};
}
