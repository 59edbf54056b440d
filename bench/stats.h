// SPDX-License-Identifier: Apache-2.0
/* Samples of one figure, and their statistics. */
#ifndef RAMET_BENCH_STATS_H
#define RAMET_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct samples {
	double *v; /* owned */
	size_t n, room;
};

/* Returns the monotonic time in ns. */
uint64_t bench_now_ns(void);
/* Returns the ms since `start`, a time of bench_now_ns. */
double bench_ms_since(uint64_t start);
/* Adds a sample. Ends the program if memory runs out. */
void samples_add(struct samples *s, double v);
void samples_free(struct samples *s);
/* Writes "name": {"median", "p90", "p99", "p99.9", "min", "max", "n", "unit"}, and sorts
 * the samples. */
void samples_print(struct samples *s, const char *name, const char *unit, FILE *out);

#endif
