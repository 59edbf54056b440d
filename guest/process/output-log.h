// SPDX-License-Identifier: Apache-2.0
/*
 * The last output of a process: a ring for each of its two streams, and a list of runs, which says
 * in which order the bytes of both came. Offsets count the bytes of both streams. A stream that
 * prints much does not push out what the other one printed. Pages are allocated when output fills
 * them.
 */
#ifndef RAMET_GUEST_PROCESS_OUTPUT_LOG_H
#define RAMET_GUEST_PROCESS_OUTPUT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/agent.h"

#define LOG_STREAMS 2
/* How many runs are remembered. A run is bytes of one stream that came one after the other. If a
 * program switches between its streams more often, the oldest runs are forgotten. */
#define LOG_RUNS 65536u

struct log_run;

struct output_log {
	uint64_t total; /* bytes of both streams so far */
	struct {
		uint8_t *ring; /* the stream's last AGENT_PROC_RING bytes; NULL: no bytes yet */
		uint64_t total;
	} streams[LOG_STREAMS];
	struct log_run *runs; /* the run number N is at N % LOG_RUNS; NULL: none yet */
	uint64_t n_runs;
};

/* Returns where the next bytes of a stream go, and in `room` how many fit there contiguously: at
 * least 1. Returns NULL when out of memory. */
uint8_t *output_log_end(struct output_log *l, unsigned stream, size_t *room);
/* Adds the `n` bytes that were written at output_log_end. If the ring is full, the oldest
 * bytes of this stream are dropped. */
void output_log_grow(struct output_log *l, unsigned stream, size_t n);

/* Kept bytes of one run, in up to two parts, since the ring may wrap around within them. */
struct output_part {
	uint64_t offset; /* of the first byte */
	unsigned stream;
	const uint8_t *bytes[2];
	size_t len[2];
};

/* Finds the first kept bytes at or after `offset`, at most `max`. Returns false when there are
 * none. */
bool output_log_find(const struct output_log *l, uint64_t offset, size_t max,
		     struct output_part *out);
/* Returns how many remembered runs have bytes at or after `offset`. */
uint64_t output_log_runs_after(const struct output_log *l, uint64_t offset);
/* Returns the memory that the kept output and the list of its runs take, in bytes. */
uint64_t output_log_kept(const struct output_log *l);
/* Frees what is kept; the totals stay. Nothing can be added any more. */
void output_log_drop(struct output_log *l);

#endif
