// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/num.h"

void random_bytes(void *out, size_t len)
{
	/* Requests of up to 256 bytes are never short once the pool is ready. */
	if (getrandom(out, len, 0) != (ssize_t)len) {
		log_error("getrandom failed: no random bytes");
		abort();
	}
}

static void (*id_fill)(unsigned char out[RANDOM_ID_BYTES]); /* NULL: random_bytes */

void random_id_fill(void (*fill)(unsigned char out[RANDOM_ID_BYTES]))
{
	id_fill = fill;
}

void random_id(char *out, size_t size, const char *prefix)
{
	size_t at = strlen(prefix), n = (size - 1 - at) / 2;
	uint8_t bytes[RANDOM_ID_BYTES];

	if (n > sizeof(bytes))
		abort();
	if (id_fill && at == 4 && n == RANDOM_ID_BYTES)
		id_fill(bytes);
	else
		random_bytes(bytes, n);
	memcpy(out, prefix, at);
	hex_write(out + at, bytes, n);
}

bool id_valid(const char *prefix, const void *id, size_t len)
{
	const char *p = id;

	if (len != 4 + 2 * RANDOM_ID_BYTES || memcmp(p, prefix, 4) != 0)
		return false;
	for (size_t i = 4; i < len; i++)
		if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f')))
			return false;
	return true;
}
