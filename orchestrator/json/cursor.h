// SPDX-License-Identifier: Apache-2.0
/*
 * Cursors: opaque text with which clients ask for the next page of a list. A cursor contains the
 * key of the last entry returned; each list defines what its keys are. It contains no secrets, and
 * a forged one only selects another position in the client's own list.
 */
#ifndef RAMET_ORCHESTRATOR_JSON_CURSOR_H
#define RAMET_ORCHESTRATOR_JSON_CURSOR_H

#include <stddef.h>

#include "base/err.h"

#define CURSOR_KEY_MAX	64
#define CURSOR_TEXT_MAX (1 + 2 * CURSOR_KEY_MAX + 8)

/* Writes a cursor, which is valid for one list only: `kind` is the letter of that list. */
void cursor_write(char out[static CURSOR_TEXT_MAX + 1], char kind, const void *key, size_t len);
/* Reads a cursor of the list `kind`. Returns the length of the key, at most `room`, or -EINVAL with
 * *e filled. */
int cursor_read(const char *text, char kind, void *key, size_t room, struct err *e);

#endif
