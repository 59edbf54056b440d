// SPDX-License-Identifier: Apache-2.0
#include "bench/stats.h"

#include <stdlib.h>
#include <time.h>

uint64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double bench_ms_since(uint64_t start)
{
	return (double)(bench_now_ns() - start) / 1e6;
}

void samples_add(struct samples *s, double v)
{
	if (s->n == s->room) {
		s->room = s->room ? 2 * s->room : 256;
		double *grown = realloc(s->v, s->room * sizeof(*s->v));
		if (!grown) {
			perror("realloc");
			exit(1);
		}
		s->v = grown;
	}
	s->v[s->n++] = v;
}

void samples_free(struct samples *s)
{
	free(s->v);
	*s = (struct samples){0};
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns a quantile by nearest rank: the smallest sample that at least `share` of all samples do
 * not exceed. */
static double quantile(const struct samples *s, double share)
{
	size_t rank = (size_t)(share * (double)s->n);

	if ((double)rank < share * (double)s->n)
		rank++;
	return s->v[rank ? rank - 1 : 0];
}

void samples_print(struct samples *s, const char *name, const char *unit, FILE *out)
{
	if (!s->n) {
		fprintf(out, "\"%s\": null", name);
		return;
	}
	qsort(s->v, s->n, sizeof(*s->v), ascending);
	fprintf(out,
		"\"%s\": {\"median\": %.6g, \"p90\": %.6g, \"p99\": %.6g, \"p99.9\": %.6g, "
		"\"min\": %.6g, \"max\": %.6g, \"n\": %zu, \"unit\": \"%s\"}",
		name, quantile(s, 0.5), quantile(s, 0.9), quantile(s, 0.99), quantile(s, 0.999),
		s->v[0], s->v[s->n - 1], s->n, unit);
}
