// SPDX-License-Identifier: Apache-2.0
/* ramet top: what sandboxes use, as a table that is drawn anew. */
#ifndef RAMET_ORCHESTRATOR_CLI_TOP_H
#define RAMET_ORCHESTRATOR_CLI_TOP_H

#include <stdbool.h>

#include "base/err.h"

/* The service's answer to `ramet processes`, owned by the caller; NULL with *e filled. */
typedef char *top_ask_fn(void *arg, struct err *e);

/* Until it is interrupted, or with `once` for one table. What a second brings is measured, so each
 * table takes one. Returns the exit status. */
int top_run(top_ask_fn *ask, void *arg, bool once);

#endif
