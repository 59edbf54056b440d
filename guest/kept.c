// SPDX-License-Identifier: Apache-2.0
#include "guest/kept.h"

#include <string.h>

void kept_clear(struct kept *k)
{
	k->total = 0;
}

uint8_t *kept_end(struct kept *k, size_t *room)
{
	size_t at = k->total % KEPT_SIZE;

	*room = KEPT_SIZE - at;
	return k->bytes + at;
}

static bool bit(const struct kept *k, size_t at)
{
	return k->streams[at / 8] >> (at % 8) & 1;
}

static void set_bits(struct kept *k, size_t at, size_t end, bool on)
{
	for (; at < end && (at % 8 || end - at < 8); at++)
		k->streams[at / 8] =
			(uint8_t)((k->streams[at / 8] & ~(1u << at % 8)) | (unsigned)on << at % 8);
	if (at == end)
		return;
	memset(k->streams + at / 8, on ? 0xff : 0, (end - at) / 8);
	if (end % 8)
		set_bits(k, end - end % 8, end, on);
}

void kept_grow(struct kept *k, size_t n, bool is_stderr)
{
	size_t at = k->total % KEPT_SIZE;

	set_bits(k, at, at + n, is_stderr);
	k->total += n;
}

void kept_add(struct kept *k, const void *data, size_t len, bool is_stderr)
{
	const uint8_t *from = data;

	while (len) {
		size_t room;
		uint8_t *to = kept_end(k, &room);
		size_t part = len < room ? len : room;

		memcpy(to, from, part);
		kept_grow(k, part, is_stderr);
		from += part;
		len -= part;
	}
}

uint64_t kept_first(const struct kept *k)
{
	return k->total < KEPT_SIZE ? 0 : k->total - KEPT_SIZE;
}

static size_t run_end(const struct kept *k, size_t at, size_t end, bool stream)
{
	while (at < end && bit(k, at) == stream) {
		/* Eight of the same at once. */
		if (at % 8 == 0 && end - at >= 8 && k->streams[at / 8] == (stream ? 0xff : 0))
			at += 8;
		else
			at++;
	}
	return at;
}

const uint8_t *kept_piece(const struct kept *k, uint64_t place, size_t max, size_t *len,
			  bool *is_stderr)
{
	size_t at = place % KEPT_SIZE, end = KEPT_SIZE;

	if (k->total - place < end - at)
		end = at + (size_t)(k->total - place);
	if (max < end - at)
		end = at + max;
	*is_stderr = bit(k, at);
	*len = run_end(k, at, end, *is_stderr) - at;
	return k->bytes + at;
}
