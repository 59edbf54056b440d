// SPDX-License-Identifier: Apache-2.0
/* Random bytes from the kernel, and ids made of them. */
#ifndef RAMET_BASE_RANDOM_H
#define RAMET_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Fills `out` with `len` random bytes, at most 256. Ends the program if the kernel returns none,
 * since ids and keys must not be guessable.
 */
void random_bytes(void *out, size_t len);
#define RANDOM_ID_BYTES 16
/*
 * Fills `out`, which has `size` bytes, with `prefix` and the hex digits of as many random bytes as
 * fit, at most RANDOM_ID_BYTES.
 */
void random_id(char *out, size_t size, const char *prefix);
/*
 * Has `fill` make the bytes of every id with a prefix of four characters and RANDOM_ID_BYTES from
 * now on: for a program whose ids say where they were made. Such ids must be as hard to guess as
 * random ones. NULL: random bytes again. Call it before the program has threads that make ids.
 */
void random_id_fill(void (*fill)(unsigned char out[RANDOM_ID_BYTES]));
/* Returns whether the `len` bytes are a whole id: `prefix`, of four characters, and all digits, as
 * random_id writes them. */
bool id_valid(const char *prefix, const void *id, size_t len);

#endif
