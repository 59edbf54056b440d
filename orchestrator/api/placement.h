// SPDX-License-Identifier: Apache-2.0
/* Decides on which host of the fleet a create makes its sandbox. Without a fleet, this host makes
 * it. */
#ifndef RAMET_ORCHESTRATOR_API_PLACEMENT_H
#define RAMET_ORCHESTRATOR_API_PLACEMENT_H

#include "orchestrator/api/handler.h"

struct route;

/* NULL: no route. */
bool placement_is_create(const struct route *route);
/* Returns true when this host makes the sandbox now. Otherwise the request was answered, or goes on
 * elsewhere. */
bool placement_is_here(struct request *r, const struct create_body *b, struct sandbox_spec *spec);
/* http_ops.unknown: other hosts of the fleet may have served the request. */
bool placement_asks_others(struct request *r);
/* http_ops.to_peer */
void placement_add_load(struct request *r);

#endif
