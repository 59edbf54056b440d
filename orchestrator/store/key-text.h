// SPDX-License-Identifier: Apache-2.0
/*
 * The text of an API key: "rmt_", 32 digits of base 62 from the kernel's random numbers (190 bits),
 * and 6 more with the CRC-32C of all before them, which distinguishes a mistyped or truncated key
 * from an unknown one.
 */
#ifndef RAMET_ORCHESTRATOR_STORE_KEY_TEXT_H
#define RAMET_ORCHESTRATOR_STORE_KEY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_TEXT_LEN 42
#define KEY_HASH_LEN 32

/* Writes the NUL-terminated text of a new key. Aborts when the kernel returns no random bytes. */
void key_text_make(char out[static KEY_TEXT_LEN + 1]);
/* Returns whether the text has the form of a key and its check digits match. */
bool key_text_is_whole(const char *text, size_t len);
/* Writes the SHA-256 of a key, which is all that is stored of it. */
void key_text_hash(const char *text, size_t len, uint8_t out[static KEY_HASH_LEN]);

#endif
