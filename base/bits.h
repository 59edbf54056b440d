// SPDX-License-Identifier: Apache-2.0
/* Arrays of bits: bit i is in byte i / 8. */
#ifndef RAMET_BASE_BITS_H
#define RAMET_BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline bool bit_get(const uint8_t *bits, uint64_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

static inline void bit_set(uint8_t *bits, uint64_t i, bool value)
{
	bits[i / 8] = (uint8_t)((bits[i / 8] & ~(1u << i % 8)) | (unsigned)value << i % 8);
}

/* Sets the bits in [from, to). */
static inline void bit_set_range(uint8_t *bits, uint64_t from, uint64_t to, bool value)
{
	for (; from < to && from % 8; from++)
		bit_set(bits, from, value);
	memset(bits + from / 8, value ? 0xff : 0, (to - from) / 8);
	for (from += (to - from) / 8 * 8; from < to; from++)
		bit_set(bits, from, value);
}

/* Returns the first index in [from, to) whose bit differs from `value`, or `to`. */
static inline uint64_t bit_run(const uint8_t *bits, uint64_t from, uint64_t to, bool value)
{
	const uint8_t same = value ? 0xff : 0;

	while (from < to && bit_get(bits, from) == value)
		from += from % 8 == 0 && to - from >= 8 && bits[from / 8] == same ? 8 : 1;
	return from;
}

/* Returns whether all of the bytes, at least one, are zero. */
static inline bool is_zero(const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	return !p[0] && !memcmp(p, p + 1, len - 1);
}

#endif
