// SPDX-License-Identifier: Apache-2.0
/* Up to which line of the audit log everything is dealt with, in a file. */
#ifndef RAMET_ORCHESTRATOR_NOTIFY_CURSOR_H
#define RAMET_ORCHESTRATOR_NOTIFY_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CURSOR_TEXT_MAX 64

/* 1: there it is; 0: there is none; -errno with *e filled: it can't be read or is damaged. */
int cursor_load(int dir, uint64_t *n, struct err *e);
/* All of it or nothing, also when the power fails. */
int cursor_save(int dir, uint64_t n, struct err *e);

/* The file's content. */
bool cursor_parse(const char *text, size_t len, uint64_t *n);
size_t cursor_print(char out[static CURSOR_TEXT_MAX], uint64_t n);

#endif
