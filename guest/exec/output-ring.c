// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/output-ring.h"

#include <string.h>

#include "base/bits.h"

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

void output_ring_grow(struct output_ring *r, size_t n, enum output_kind kind)
{
	size_t at = r->total % OUTPUT_RING_SIZE;

	if (kind >= OUTPUT_BUNDLE && !r->rich) {
		memset(r->high, 0, sizeof(r->high));
		r->rich = true;
	}
	bit_set_range(r->low, at, at + n, kind & 1);
	if (r->rich)
		bit_set_range(r->high, at, at + n, kind >> 1);
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

const uint8_t *output_ring_run(const struct output_ring *r, uint64_t offset, size_t max,
			       size_t *len, enum output_kind *kind)
{
	size_t at = offset % OUTPUT_RING_SIZE, end = OUTPUT_RING_SIZE;

	if (r->total - offset < end - at)
		end = at + (size_t)(r->total - offset);
	if (max < end - at)
		end = at + max;
	*kind = (enum output_kind)bit_get(r->low, at);
	end = bit_run(r->low, at, end, bit_get(r->low, at));
	if (r->rich) {
		*kind |= bit_get(r->high, at) ? OUTPUT_BUNDLE : 0;
		end = bit_run(r->high, at, end, bit_get(r->high, at));
	}
	*len = end - at;
	return r->bytes + at;
}
