// SPDX-License-Identifier: Apache-2.0
/* rametctl top: a table of what sandboxes use, redrawn every second. */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_TOP_H
#define RAMET_ORCHESTRATOR_OPERATOR_TOP_H

#include <stdbool.h>

#include "base/err.h"

/* Returns the service's answer to `rametctl processes`, owned by the caller. NULL: *e is filled. */
typedef char *top_ask_fn(void *arg, struct err *e);

/* Draws tables until it is interrupted, or one table with `once`. Each takes a second, over which
 * rates are measured. Returns the exit status. */
int top_run(top_ask_fn *ask, void *arg, bool once);

#endif
