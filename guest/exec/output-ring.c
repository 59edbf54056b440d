// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/output-ring.h"

#include <string.h>

void output_ring_clear(struct output_ring *r)
{
	r->total = 0;
	r->rich = false;
}

uint8_t *output_ring_end(struct output_ring *r, size_t *room)
{
	size_t at = r->total % OUTPUT_RING_SIZE;

	*room = OUTPUT_RING_SIZE - at;
	return r->bytes + at;
}

static void set_bits(uint8_t *bits, size_t at, size_t end, bool on)
{
	for (; at < end && (at % 8 || end - at < 8); at++)
		bits[at / 8] = (uint8_t)((bits[at / 8] & ~(1u << at % 8)) | (unsigned)on << at % 8);
	if (at == end)
		return;
	memset(bits + at / 8, on ? 0xff : 0, (end - at) / 8);
	if (end % 8)
		set_bits(bits, end - end % 8, end, on);
}

void output_ring_grow(struct output_ring *r, size_t n, enum output_kind kind)
{
	size_t at = r->total % OUTPUT_RING_SIZE;

	if (kind >= OUTPUT_BUNDLE && !r->rich) {
		memset(r->high, 0, sizeof(r->high));
		r->rich = true;
	}
	set_bits(r->low, at, at + n, kind & 1);
	if (r->rich)
		set_bits(r->high, at, at + n, kind >> 1);
	r->total += n;
}

void output_ring_add(struct output_ring *r, const void *data, size_t len, enum output_kind kind)
{
	const uint8_t *from = data;

	while (len) {
		size_t room;
		uint8_t *to = output_ring_end(r, &room);
		size_t part = len < room ? len : room;

		memcpy(to, from, part);
		output_ring_grow(r, part, kind);
		from += part;
		len -= part;
	}
}

uint64_t output_ring_first(const struct output_ring *r)
{
	return r->total < OUTPUT_RING_SIZE ? 0 : r->total - OUTPUT_RING_SIZE;
}

static bool bit(const uint8_t *bits, size_t at)
{
	return bits[at / 8] >> (at % 8) & 1;
}

/* Returns where the run of equal bits that includes `at` ends, at most `end`. */
static size_t run_end(const uint8_t *bits, size_t at, size_t end)
{
	const bool on = bit(bits, at);

	while (at < end && bit(bits, at) == on) {
		/* Eight equal bits: skip them together. */
		if (at % 8 == 0 && end - at >= 8 && bits[at / 8] == (on ? 0xff : 0))
			at += 8;
		else
			at++;
	}
	return at;
}

const uint8_t *output_ring_run(const struct output_ring *r, uint64_t offset, size_t max,
			       size_t *len, enum output_kind *kind)
{
	size_t at = offset % OUTPUT_RING_SIZE, end = OUTPUT_RING_SIZE;

	if (r->total - offset < end - at)
		end = at + (size_t)(r->total - offset);
	if (max < end - at)
		end = at + max;
	*kind = (enum output_kind)bit(r->low, at);
	end = run_end(r->low, at, end);
	if (r->rich) {
		*kind |= bit(r->high, at) ? OUTPUT_BUNDLE : 0;
		end = run_end(r->high, at, end);
	}
	*len = end - at;
	return r->bytes + at;
}
