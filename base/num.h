// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_BASE_NUM_H
#define RAMET_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Returns the smaller of both; `value` may have more bits than the limit. */
static inline uint32_t min_u32(uint64_t value, uint32_t limit)
{
	return value < limit ? (uint32_t)value : limit;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* Returns the delay before the next retry: `first` if the last delay was 0, else twice the last
 * one, at most `most`. */
static inline uint32_t backoff_next(uint32_t last, uint32_t first, uint32_t most)
{
	return last ? min_u32(2ull * last, most) : first;
}

/* Returns whether one user, who has `own` of the `total` in use, may have more of at most `most`:
 * above half the limit only users who have less than an eighth of it may. */
static inline bool fair_share(size_t total, size_t own, size_t most)
{
	return total < most && (total < most / 2 || own < most / 8);
}

/* Parses the digits at *p and moves *p past them. No digits count as 0. Returns false if the
 * value is not in [min, max]. */
static inline bool number_take(const char **p, uint32_t min, uint32_t max, uint32_t *out)
{
	const char *start = *p;
	uint64_t n = 0;

	for (; **p >= '0' && **p <= '9' && n <= max; (*p)++)
		n = n * 10 + (uint64_t)(**p - '0');
	*out = (uint32_t)n;
	return *p > start && n >= min && n <= max;
}

/* Parses a text that is nothing but a number in [min, max]. */
static inline bool number_parse(const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
	return number_take(&text, min, max, out) && !*text;
}

/* Returns the value of a hexadecimal digit, or -1 for other characters. */
static inline int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads `n` bytes written as 2 * n hexadecimal digits at `p`. */
static inline bool hex_bytes(uint8_t *out, size_t n, const char *p)
{
	for (size_t i = 0; i < n; i++) {
		int high = hex_digit(p[2 * i]), low = high < 0 ? -1 : hex_digit(p[2 * i + 1]);

		if (low < 0)
			return false;
		out[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* Writes `n` bytes as 2 * n lower-case hexadecimal digits and a NUL. */
static inline void hex_write(char *out, const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[2 * n] = '\0';
}

#endif
