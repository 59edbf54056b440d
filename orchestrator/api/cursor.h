// SPDX-License-Identifier: Apache-2.0
/*
 * Cursors: where the next page of a list begins, as text for a client that does not look into it. A
 * cursor holds the key of the last entry that was told, of which each list knows what it means, and
 * nothing that is secret: who makes one up gets a place in the list that is his own.
 */
#ifndef RAMET_ORCHESTRATOR_API_CURSOR_H
#define RAMET_ORCHESTRATOR_API_CURSOR_H

#include <stddef.h>

#include "base/err.h"

#define CURSOR_KEY_MAX	64
#define CURSOR_TEXT_MAX (1 + 2 * CURSOR_KEY_MAX + 8)

/* `kind` is the list's letter: a cursor of one list is no good for another. */
void cursor_write(char out[static CURSOR_TEXT_MAX + 1], char kind, const void *key, size_t len);
/* Returns the length of the key, up to `room`; -EINVAL with *e saying what is wrong. */
int cursor_read(const char *text, char kind, void *key, size_t room, struct err *e);

#endif
