// SPDX-License-Identifier: Apache-2.0
/*
 * A ring with the last bytes of a call's output, text and results in the order they came. Bytes
 * that were sent stay in it for a host that attaches later. The ring has a fixed size; its pages
 * are not touched before output fills them.
 */
#ifndef RAMET_GUEST_EXEC_OUTPUT_RING_H
#define RAMET_GUEST_EXEC_OUTPUT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/agent.h"

/* The last two terms hold what comes with a call's end: text of the driver, a line of the agent. */
#define OUTPUT_RING_SIZE (AGENT_OUTPUT_RING + AGENT_AHEAD_MAX + AGENT_PAYLOAD_MAX + 4096u)

_Static_assert(OUTPUT_RING_SIZE % 8 == 0, "no byte of `low` covers both ends of the ring");

enum output_kind {
	OUTPUT_STDOUT,
	OUTPUT_STDERR,
	OUTPUT_BUNDLE,	  /* bytes of AGENT_BUNDLE frames */
	OUTPUT_BUNDLE_END /* one byte: enum agent_result, or OUTPUT_FAULT */
};
#define OUTPUT_FAULT 0xff

struct output_ring {
	uint64_t total; /* bytes added since output_ring_clear; the offset of the next one */
	bool rich;	/* it has bytes of results: high[] is in use */
	uint8_t bytes[OUTPUT_RING_SIZE];
	/* The kind of each byte: its low bit, and its high bit, which is 0 unless `rich`. */
	uint8_t low[OUTPUT_RING_SIZE / 8];
	uint8_t high[OUTPUT_RING_SIZE / 8];
};

void output_ring_clear(struct output_ring *r);
/* Returns where the next bytes go. `room` is how many fit there contiguously: never 0, at most
 * OUTPUT_RING_SIZE. */
uint8_t *output_ring_end(struct output_ring *r, size_t *room);
/* Adds the `n` bytes that were written at output_ring_end. A full ring drops its oldest bytes. */
void output_ring_grow(struct output_ring *r, size_t n, enum output_kind kind);
void output_ring_add(struct output_ring *r, const void *data, size_t len, enum output_kind kind);
/* Returns the offset of the oldest byte in the ring. */
uint64_t output_ring_first(const struct output_ring *r);
/* Returns the longest contiguous run of one kind from `offset` on, at most `max` bytes. `offset`
 * is below total. */
const uint8_t *output_ring_run(const struct output_ring *r, uint64_t offset, size_t max,
			       size_t *len, enum output_kind *kind);

#endif
