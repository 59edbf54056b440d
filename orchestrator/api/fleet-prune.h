// SPDX-License-Identifier: Apache-2.0
/* Private declarations: checkpoints.c prunes this host's checkpoints, fleet-prune.c those of all
 * hosts. */
#ifndef RAMET_ORCHESTRATOR_API_FLEET_PRUNE_H
#define RAMET_ORCHESTRATOR_API_FLEET_PRUNE_H

#include "orchestrator/api/handler.h"

/* `sandbox`: the one whose checkpoints are pruned; its `p` is NULL for those of all sandboxes. */

/* Returns false after it has passed the request on to the host that has the sandbox. */
bool fleet_prune_is_here(struct request *r, const struct json_text *sandbox);
/* Returns whether other hosts are to be asked, too: with fleet_prune_begin, then fleet_prune. */
bool fleet_prune_asks(const struct request *r, const struct json_text *sandbox);
/* Returns false after it has refused the request, since too many others ask all hosts now. */
bool fleet_prune_begin(struct request *r);
/* Has the other hosts prune, too, and adds their checkpoints to the `n` in r->out, which have
 * `bytes` bytes. Then calls `done`. */
void fleet_prune(struct request *r, size_t n, uint64_t bytes,
		 void (*done)(struct request *r, uint64_t bytes));

#endif
