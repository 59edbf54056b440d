// SPDX-License-Identifier: Apache-2.0
/* SHA-256 (FIPS 180-4), with the processor's instructions for it where it has them. */
#ifndef RAMET_GUEST_FILES_SHA256_H
#define RAMET_GUEST_FILES_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_LEN 32

struct sha256 {
	uint32_t state[8];
	uint64_t total; /* bytes */
	uint8_t block[64];
	/* computes in plain C; set by sha256_init on a processor without the instructions */
	bool portable;
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t len);
void sha256_end(struct sha256 *s, uint8_t out[SHA256_LEN]);

#endif
