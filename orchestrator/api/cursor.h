// SPDX-License-Identifier: Apache-2.0
/*
 * Cursors: where the next page of a list begins, as opaque text for clients. A cursor contains the
 * key of the last entry that was returned, whose meaning each list defines. It contains no secrets,
 * and a forged one only selects another position in the client's own list.
 */
#ifndef RAMET_ORCHESTRATOR_API_CURSOR_H
#define RAMET_ORCHESTRATOR_API_CURSOR_H

#include <stddef.h>

#include "base/err.h"

#define CURSOR_KEY_MAX	64
#define CURSOR_TEXT_MAX (1 + 2 * CURSOR_KEY_MAX + 8)

/* `kind` is the list's letter: a cursor is valid for its own list only. */
void cursor_write(char out[static CURSOR_TEXT_MAX + 1], char kind, const void *key, size_t len);
/* Returns the length of the key, up to `room`, or -EINVAL with *e filled. */
int cursor_read(const char *text, char kind, void *key, size_t room, struct err *e);

#endif
