// SPDX-License-Identifier: Apache-2.0
/* Private declarations: checkpoints.c prunes this host's checkpoints, fleet-prune.c those of all
 * hosts. */
#ifndef RAMET_ORCHESTRATOR_API_FLEET_PRUNE_H
#define RAMET_ORCHESTRATOR_API_FLEET_PRUNE_H

#include "orchestrator/api/handler.h"

/* Returns false when the host of the sandbox does it all; NULL: of all sandboxes. */
bool fleet_prune_is_here(struct request *r, const struct json_text *sandbox);
/* Returns whether other hosts are to be asked, too, with fleet_prune. *refused: too many are asked
 * at this time, which was answered. */
bool fleet_prune_begin(struct request *r, const struct json_text *sandbox, bool *refused);
/* Adds to the `n` checkpoints in r->out, with so many bytes, those that other hosts prune. Then
 * calls `done`. */
void fleet_prune(struct request *r, size_t n, uint64_t bytes,
		 void (*done)(struct request *r, uint64_t bytes));

#endif
