// SPDX-License-Identifier: Apache-2.0
/* rametctl top: a table of what sandboxes use, redrawn every second. */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_TOP_H
#define RAMET_ORCHESTRATOR_OPERATOR_TOP_H

#include <stdbool.h>

#include "orchestrator/config/config.h"

/* Draws tables until it is interrupted, or one table with `once`. Each takes a second, over which
 * rates are measured. Returns the exit status. */
int top_run(const struct config *config, bool once);

#endif
