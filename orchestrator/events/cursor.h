// SPDX-License-Identifier: Apache-2.0
/* A file with the number of the last line of the audit log that was handled. */
#ifndef RAMET_ORCHESTRATOR_EVENTS_CURSOR_H
#define RAMET_ORCHESTRATOR_EVENTS_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CURSOR_TEXT_MAX 64

/* Reads the cursor. Returns 1; 0 if there is none; -errno with *e filled if it cannot be read or is
 * damaged. */
int cursor_load(int dir, uint64_t *n, struct err *e);
/* Replaces the cursor atomically, also with respect to a power cut. */
int cursor_save(int dir, uint64_t n, struct err *e);

/* Parse and print the content of the file. cursor_print returns its length. */
bool cursor_parse(const char *text, size_t len, uint64_t *n);
size_t cursor_print(char out[static CURSOR_TEXT_MAX], uint64_t n);

#endif
