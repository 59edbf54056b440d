// SPDX-License-Identifier: Apache-2.0
/*
 * The text of an API key: "rmt_", 32 digits of base 62 from the kernel's random numbers (190 bits),
 * and 6 more that are the CRC-32C of all before them. So a slip of the finger or a key that was cut
 * off is told from one that is not known here.
 */
#ifndef RAMET_ORCHESTRATOR_KEYS_KEY_TEXT_H
#define RAMET_ORCHESTRATOR_KEYS_KEY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_TEXT_LEN 42
#define KEY_HASH_LEN 32

/* A new one, NUL-terminated. Ends the process when the kernel gives no random bytes. */
void key_text_make(char out[static KEY_TEXT_LEN + 1]);
/* Whether it has the form and its check digits fit. */
bool key_text_is_whole(const char *text, size_t len);
/* SHA-256: what is kept of a key. */
void key_text_hash(const char *text, size_t len, uint8_t out[static KEY_HASH_LEN]);

#endif
