// SPDX-License-Identifier: Apache-2.0
/*
 * A ring with the last bytes of a call's output, both streams in the order they came. Bytes that
 * were sent stay in it for a host that attaches later. The ring has a fixed size; its pages are
 * not touched before output fills them.
 */
#ifndef RAMET_GUEST_EXEC_OUTPUT_RING_H
#define RAMET_GUEST_EXEC_OUTPUT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/agent.h"

/* The last two terms hold what comes with a call's end: text of the driver, a line of the agent. */
#define OUTPUT_RING_SIZE (AGENT_OUTPUT_RING + AGENT_AHEAD_MAX + AGENT_PAYLOAD_MAX + 4096u)

_Static_assert(OUTPUT_RING_SIZE % 8 == 0, "no byte of `streams` covers both ends of the ring");

struct output_ring {
	uint64_t total; /* bytes added since output_ring_clear; the offset of the next one */
	uint8_t bytes[OUTPUT_RING_SIZE];
	uint8_t streams[OUTPUT_RING_SIZE / 8]; /* one bit per byte, set for stderr */
};

void output_ring_clear(struct output_ring *r);
/* Returns where the next bytes go. `room` is how many fit there contiguously: never 0, at most
 * OUTPUT_RING_SIZE. */
uint8_t *output_ring_end(struct output_ring *r, size_t *room);
/* Adds the `n` bytes that were written at output_ring_end. A full ring drops its oldest bytes. */
void output_ring_grow(struct output_ring *r, size_t n, bool is_stderr);
void output_ring_add(struct output_ring *r, const void *data, size_t len, bool is_stderr);
/* Returns the offset of the oldest byte in the ring. */
uint64_t output_ring_first(const struct output_ring *r);
/* Returns the longest contiguous run of one stream from `offset` on, at most `max` bytes. `offset`
 * is below total. */
const uint8_t *output_ring_run(const struct output_ring *r, uint64_t offset, size_t max,
			       size_t *len, bool *is_stderr);

#endif
