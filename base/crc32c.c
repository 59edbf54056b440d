// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* Castagnoli polynomial, bits reversed */

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
/* Uses the CPU's instruction on 8 bytes at a time: checking a VM's state takes a microsecond. */
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

/* What each bit of the register has become after 4096 zero bytes. The checksum is linear, so the
 * result for a register is the XOR of the results for its set bits. */
static const uint32_t over_zero_page[32] = {
	0xc2a5b65e, 0x80a71a4d, 0x04a2426b, 0x094484d6, 0x128909ac, 0x25121358, 0x4a2426b0,
	0x94484d60, 0x2d7cec31, 0x5af9d862, 0xb5f3b0c4, 0x6e0b1779, 0xdc162ef2, 0xbdc02b15,
	0x7e6c20db, 0xfcd841b6, 0xfc5cf59d, 0xfd559dcb, 0xff474d67, 0xfb62ec3f, 0xf329ae8f,
	0xe3bf2bef, 0xc292212f, 0x80c834af, 0x047c1faf, 0x08f83f5e, 0x11f07ebc, 0x23e0fd78,
	0x47c1faf0, 0x8f83f5e0, 0x1aeb9d31, 0x35d73a62,
};

uint32_t crc32c_zero_page(uint32_t crc)
{
	uint32_t in = ~crc, out = 0;

	for (unsigned bit = 0; bit < 32; bit++)
		out ^= over_zero_page[bit] & -(in >> bit & 1);
	return ~out;
}
