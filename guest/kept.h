// SPDX-License-Identifier: Apache-2.0
/*
 * The last bytes of a call's output, of both streams in the order they came: what was sent stays
 * for a host that attaches later. A ring of a fixed size, in memory that is not touched before
 * output fills it.
 */
#ifndef RAMET_GUEST_KEPT_H
#define RAMET_GUEST_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/agent.h"

/* What comes with a call's end is on top: the driver's last text, and a line of the agent's. */
#define KEPT_SIZE (AGENT_KEPT_MAX + AGENT_AHEAD_MAX + AGENT_PAYLOAD_MAX + 4096u)

_Static_assert(KEPT_SIZE % 8 == 0, "a byte of streams is never shared across the edge");

struct kept {
	uint64_t total; /* bytes put in since it was cleared; the next one's place */
	uint8_t bytes[KEPT_SIZE];
	uint8_t streams[KEPT_SIZE / 8]; /* a bit for each byte: it is of stderr */
};

void kept_clear(struct kept *k);
/* Where the next bytes go, and how many fit there in one piece: never 0, up to KEPT_SIZE. */
uint8_t *kept_end(struct kept *k, size_t *room);
/* Counts `n` bytes that were put at kept_end; the oldest go when the ring is full. */
void kept_grow(struct kept *k, size_t n, bool is_stderr);
void kept_add(struct kept *k, const void *data, size_t len, bool is_stderr);
/* The place of the oldest byte that is there. */
uint64_t kept_first(const struct kept *k);
/* The longest piece of one stream from place `at` on, up to `max` bytes; `at` is below total. */
const uint8_t *kept_piece(const struct kept *k, uint64_t at, size_t max, size_t *len,
			  bool *is_stderr);

#endif
