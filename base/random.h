// SPDX-License-Identifier: Apache-2.0
/* Random bytes of the kernel, and ids made of them. */
#ifndef RAMET_BASE_RANDOM_H
#define RAMET_BASE_RANDOM_H

#include <stddef.h>

/* Fills `out` with up to 256 bytes. A kernel that gives none ends the program: nothing here goes on
 * with an id or a key that can be guessed. */
void random_bytes(void *out, size_t len);
#define RANDOM_ID_BYTES 16
/* Makes `out`, of `size` bytes, a text that fills it: `prefix`, then hex digits of up to
 * RANDOM_ID_BYTES bytes, two each. */
void random_id(char *out, size_t size, const char *prefix);

#endif
