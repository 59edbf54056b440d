// SPDX-License-Identifier: Apache-2.0
#include "guest/files/sha256.h"

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#define BLOCK 64

/* FIPS 180-4, 4.2.2 */
static const uint32_t K[64] __attribute__((aligned(16))) = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
	0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2,
};

static uint32_t rotr(uint32_t x, unsigned n)
{
	return x >> n | x << (32 - n);
}

static void schedule(uint32_t w[64], const uint8_t *block)
{
	for (int i = 0; i < 16; i++, block += 4)
		w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 |
		       (uint32_t)block[2] << 8 | block[3];
	for (int i = 16; i < 64; i++) {
		uint32_t a = w[i - 15], b = w[i - 2];

		w[i] = w[i - 16] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) + w[i - 7] +
		       (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
	}
}

/* The indices of the standard's variables rotate instead of their values: a is v[-i mod 8]. */
__attribute__((always_inline)) static inline void round_of(uint32_t v[8], const uint32_t *w, int i)
{
	const uint32_t a = v[-i & 7], b = v[(1 - i) & 7], c = v[(2 - i) & 7];
	const uint32_t e = v[(4 - i) & 7], f = v[(5 - i) & 7], g = v[(6 - i) & 7];
	uint32_t *d = &v[(3 - i) & 7], *h = &v[(7 - i) & 7];

	*h += (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i];
	*d += *h;
	*h += (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

static void blocks_portable(uint32_t state[8], const uint8_t *data, size_t count)
{
	uint32_t w[64], v[8];

	for (; count; count--, data += BLOCK) {
		schedule(w, data);
		memcpy(v, state, sizeof(v));
#pragma GCC unroll 64
		for (int i = 0; i < 64; i++)
			round_of(v, w, i);
		for (int i = 0; i < 8; i++)
			state[i] += v[i];
	}
}

/*
 * The instructions work on two halves of the state, ABEF and CDGH, and on four words of the
 * message at once: m[i % 4] holds words 4i to 4i+3.
 */
__attribute__((target("sha,sse4.1,ssse3"))) static void
blocks_sha_ni(uint32_t state[8], const uint8_t *data, size_t count)
{
	const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
	__m128i lo = _mm_loadu_si128((const __m128i *)state);
	__m128i hi = _mm_loadu_si128((const __m128i *)(state + 4));
	__m128i badc = _mm_shuffle_epi32(lo, 0xb1), efgh = _mm_shuffle_epi32(hi, 0x1b);
	__m128i abef = _mm_alignr_epi8(badc, efgh, 8), cdgh = _mm_blend_epi16(efgh, badc, 0xf0);
	__m128i m[4];

	for (; count; count--, data += BLOCK) {
		const __m128i abef_was = abef, cdgh_was = cdgh;

		for (int i = 0; i < 16; i++) {
			__m128i *now = &m[i % 4];

			if (i < 4) {
				*now = _mm_loadu_si128((const __m128i *)data + i);
				*now = _mm_shuffle_epi8(*now, swap);
			} else {
				const __m128i *last = &m[(i + 3) % 4];
				__m128i w7 = _mm_alignr_epi8(*last, m[(i + 2) % 4], 4);

				*now = _mm_sha256msg1_epu32(*now, m[(i + 1) % 4]);
				*now = _mm_sha256msg2_epu32(_mm_add_epi32(*now, w7), *last);
			}
			__m128i wk =
				_mm_add_epi32(*now, _mm_load_si128((const __m128i *)(K + 4 * i)));
			cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
			abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
		}
		abef = _mm_add_epi32(abef, abef_was);
		cdgh = _mm_add_epi32(cdgh, cdgh_was);
	}
	__m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
	_mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
	_mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static bool has_sha_ni(void)
{
	unsigned a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1))
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29); /* SHA */
}

static void blocks(struct sha256 *s, const uint8_t *data, size_t count)
{
	if (s->portable)
		blocks_portable(s->state, data, count);
	else
		blocks_sha_ni(s->state, data, count);
}

void sha256_init(struct sha256 *s)
{
	static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
					  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	static int sha_ni = -1;

	if (sha_ni < 0)
		sha_ni = has_sha_ni();
	memcpy(s->state, first, sizeof(first));
	s->total = 0;
	s->portable = !sha_ni;
}

void sha256_add(struct sha256 *s, const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t held = s->total % BLOCK;

	s->total += len;
	if (held + len < BLOCK) {
		memcpy(s->block + held, p, len);
		return;
	}
	if (held) {
		memcpy(s->block + held, p, BLOCK - held);
		blocks(s, s->block, 1);
		p += BLOCK - held;
		len -= BLOCK - held;
	}
	blocks(s, p, len / BLOCK);
	memcpy(s->block, p + len / BLOCK * BLOCK, len % BLOCK);
}

void sha256_end(struct sha256 *s, uint8_t out[SHA256_LEN])
{
	const uint64_t bits = s->total * 8;
	size_t held = s->total % BLOCK;
	uint8_t tail[2 * BLOCK] = {0};
	size_t size = held < BLOCK - 8 ? BLOCK : 2 * BLOCK;

	memcpy(tail, s->block, held);
	tail[held] = 0x80;
	for (int i = 0; i < 8; i++)
		tail[size - 1 - (size_t)i] = (uint8_t)(bits >> (8 * i));
	blocks(s, tail, size / BLOCK);
	for (int i = 0; i < SHA256_LEN; i++)
		out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}
