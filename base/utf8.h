// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_BASE_UTF8_H
#define RAMET_BASE_UTF8_H

#include <stddef.h>

/*
 * Returns the length of the character at p (RFC 3629: no overlong forms, no surrogates, up to
 * U+10FFFF), or 0 for invalid bytes. *bad is then the number of bytes that one U+FFFD replaces
 * (Unicode 15, 3.9: the longest valid prefix of a character, at least 1). p must be below end.
 */
static inline size_t utf8_len(const unsigned char *p, const unsigned char *end, size_t *bad)
{
	unsigned char first = p[0], low = 0x80, high = 0xbf;
	size_t len = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

	*bad = 1;
	if (first < 0x80)
		return 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	if (first == 0xe0)
		low = 0xa0;
	else if (first == 0xed)
		high = 0x9f;
	else if (first == 0xf0)
		low = 0x90;
	else if (first == 0xf4)
		high = 0x8f;
	for (size_t i = 1; i < len; i++) {
		if (p + i >= end || p[i] < low || p[i] > high)
			return 0;
		*bad = i + 1;
		low = 0x80;
		high = 0xbf;
	}
	return len;
}

#endif
