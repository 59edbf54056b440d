// SPDX-License-Identifier: Apache-2.0
/* Private declarations: audit.c has the events of this host, fleet-events.c those of all hosts. */
#ifndef RAMET_ORCHESTRATOR_API_FLEET_EVENTS_H
#define RAMET_ORCHESTRATOR_API_FLEET_EVENTS_H

#include "orchestrator/api/handler.h"
#include "orchestrator/api/page-key.h"

/* Answers with the events of all hosts, in the order of time. */
void fleet_events_serve(struct request *r, const struct event_query *q);
/* Starts, as the request's call, to read those events of this host that come after a position and
 * that the request's key may see. Fills in the rest of the query. Returns false with *f filled. */
bool events_read_from(struct request *r, const struct event_position *at, struct event_query *q,
		      service_event_fn *fn, service_done_fn *ended, struct failure *f);

#endif
