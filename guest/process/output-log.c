// SPDX-License-Identifier: Apache-2.0
#include "guest/process/output-log.h"

#include <sys/mman.h>

#include "base/num.h"

struct log_run {
	uint64_t offset; /* of its first byte, in the output of both streams */
	uint64_t place;	 /* of its first byte, in its stream */
	uint64_t len : 63;
	uint64_t stream : 1;
};

static void *map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

uint8_t *output_log_end(struct output_log *l, unsigned stream, size_t *room)
{
	size_t at = l->streams[stream].total % AGENT_PROC_RING;

	if (!l->runs)
		l->runs = map(LOG_RUNS * sizeof(*l->runs));
	if (!l->streams[stream].ring)
		l->streams[stream].ring = map(AGENT_PROC_RING);
	if (!l->runs || !l->streams[stream].ring)
		return NULL;
	*room = AGENT_PROC_RING - at;
	return l->streams[stream].ring + at;
}

static struct log_run *run_at(const struct output_log *l, uint64_t number)
{
	return &l->runs[number % LOG_RUNS];
}

void output_log_grow(struct output_log *l, unsigned stream, size_t n)
{
	struct log_run *last = l->n_runs ? run_at(l, l->n_runs - 1) : NULL;

	if (!last || last->stream != stream) {
		last = run_at(l, l->n_runs++);
		*last = (struct log_run){.offset = l->total,
					 .place = l->streams[stream].total,
					 .stream = stream & 1};
	}
	last->len += n;
	l->streams[stream].total += n;
	l->total += n;
}

/* Returns the number of the first run that ends after `offset`; n_runs if there is none. */
static uint64_t first_run(const struct output_log *l, uint64_t offset)
{
	uint64_t low = l->n_runs < LOG_RUNS ? 0 : l->n_runs - LOG_RUNS, high = l->n_runs;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		const struct log_run *run = run_at(l, middle);

		if (run->offset + run->len > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Fills `out` with the bytes of a run from `skip` on. */
static void fill(const struct output_log *l, const struct log_run *run, uint64_t skip, size_t max,
		 struct output_part *out)
{
	const uint8_t *ring = l->streams[run->stream].ring;
	size_t at = (run->place + skip) % AGENT_PROC_RING, len = min_u64(run->len - skip, max);
	size_t first = min_u64(len, AGENT_PROC_RING - at);

	*out = (struct output_part){.offset = run->offset + skip,
				    .stream = run->stream,
				    .bytes = {ring + at, ring},
				    .len = {first, len - first}};
}

bool output_log_find(const struct output_log *l, uint64_t offset, size_t max,
		     struct output_part *out)
{
	for (uint64_t i = first_run(l, offset); i < l->n_runs; i++) {
		const struct log_run *run = run_at(l, i);
		uint64_t total = l->streams[run->stream].total;
		uint64_t kept = total < AGENT_PROC_RING ? 0 : total - AGENT_PROC_RING;
		uint64_t skip = offset > run->offset ? offset - run->offset : 0;

		if (run->place + skip < kept)
			skip = kept - run->place;
		if (skip >= run->len)
			continue;
		fill(l, run, skip, max, out);
		return true;
	}
	return false;
}

uint64_t output_log_runs_after(const struct output_log *l, uint64_t offset)
{
	return l->n_runs - first_run(l, offset);
}

uint64_t output_log_kept(const struct output_log *l)
{
	uint64_t kept = min_u64(l->n_runs, LOG_RUNS) * sizeof(*l->runs);

	for (unsigned i = 0; i < LOG_STREAMS; i++)
		if (l->streams[i].ring)
			kept += min_u64(l->streams[i].total, AGENT_PROC_RING);
	return kept;
}

void output_log_drop(struct output_log *l)
{
	for (unsigned i = 0; i < LOG_STREAMS; i++) {
		if (l->streams[i].ring)
			munmap(l->streams[i].ring, AGENT_PROC_RING);
		l->streams[i].ring = NULL;
	}
	if (l->runs)
		munmap(l->runs, LOG_RUNS * sizeof(*l->runs));
	l->runs = NULL;
	l->n_runs = 0;
}
