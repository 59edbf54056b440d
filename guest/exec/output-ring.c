// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/output-ring.h"

#include <string.h>

void output_ring_clear(struct output_ring *r)
{
	r->total = 0;
}

uint8_t *output_ring_end(struct output_ring *r, size_t *room)
{
	size_t at = r->total % OUTPUT_RING_SIZE;

	*room = OUTPUT_RING_SIZE - at;
	return r->bytes + at;
}

static bool bit(const struct output_ring *r, size_t at)
{
	return r->streams[at / 8] >> (at % 8) & 1;
}

static void set_bits(struct output_ring *r, size_t at, size_t end, bool on)
{
	for (; at < end && (at % 8 || end - at < 8); at++)
		r->streams[at / 8] =
			(uint8_t)((r->streams[at / 8] & ~(1u << at % 8)) | (unsigned)on << at % 8);
	if (at == end)
		return;
	memset(r->streams + at / 8, on ? 0xff : 0, (end - at) / 8);
	if (end % 8)
		set_bits(r, end - end % 8, end, on);
}

void output_ring_grow(struct output_ring *r, size_t n, bool is_stderr)
{
	size_t at = r->total % OUTPUT_RING_SIZE;

	set_bits(r, at, at + n, is_stderr);
	r->total += n;
}

void output_ring_add(struct output_ring *r, const void *data, size_t len, bool is_stderr)
{
	const uint8_t *from = data;

	while (len) {
		size_t room;
		uint8_t *to = output_ring_end(r, &room);
		size_t part = len < room ? len : room;

		memcpy(to, from, part);
		output_ring_grow(r, part, is_stderr);
		from += part;
		len -= part;
	}
}

uint64_t output_ring_first(const struct output_ring *r)
{
	return r->total < OUTPUT_RING_SIZE ? 0 : r->total - OUTPUT_RING_SIZE;
}

static size_t run_end(const struct output_ring *r, size_t at, size_t end, bool stream)
{
	while (at < end && bit(r, at) == stream) {
		/* Eight bytes of this stream: skip them together. */
		if (at % 8 == 0 && end - at >= 8 && r->streams[at / 8] == (stream ? 0xff : 0))
			at += 8;
		else
			at++;
	}
	return at;
}

const uint8_t *output_ring_run(const struct output_ring *r, uint64_t offset, size_t max,
			       size_t *len, bool *is_stderr)
{
	size_t at = offset % OUTPUT_RING_SIZE, end = OUTPUT_RING_SIZE;

	if (r->total - offset < end - at)
		end = at + (size_t)(r->total - offset);
	if (max < end - at)
		end = at + max;
	*is_stderr = bit(r, at);
	*len = run_end(r, at, end, *is_stderr) - at;
	return r->bytes + at;
}
