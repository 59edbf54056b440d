// SPDX-License-Identifier: Apache-2.0
/* Contexts: further interpreters beside the default one, and the requests on them. */
#ifndef RAMET_GUEST_EXEC_CONTEXTS_H
#define RAMET_GUEST_EXEC_CONTEXTS_H

#include <stdbool.h>

#include "guest/conn.h"

/* `grace_ms` as for call_init; `run_dir` gets a folder for each bash context. */
void contexts_init(unsigned grace_ms, const char *run_dir);
/* Starts the contexts of an agent before this one again, without their state. `how` says how that
 * agent ended, as the start of a sentence. */
void contexts_restore(const char *how);
/* Handles a request of a type for which context_request_is returns true. Returns 0 or -EPROTO. */
int contexts_handle(struct conn *c, const struct frame *f, struct err *e);
/* Makes every interpreter reseed before it gets more code. */
void contexts_reseed(bool user_generators);

/* Returns the milliseconds until contexts_on_time has to be called; -1: nothing is due. */
int contexts_timeout_ms(void);
/* Calls call_on_time for each context, and frees those that have ended; called between events. */
void contexts_on_time(void);

#endif
