// SPDX-License-Identifier: Apache-2.0
/* Private declarations: audit.c has the events of this host, fleet-events.c those of all hosts. */
#ifndef RAMET_ORCHESTRATOR_API_FLEET_EVENTS_H
#define RAMET_ORCHESTRATOR_API_FLEET_EVENTS_H

#include "orchestrator/api/handler.h"
#include "orchestrator/api/page-key.h"

/* Bytes of the events that another host gets at once: less than peers_ask takes. */
#define EVENTS_PART_SIZE (192u << 10)

/* Answers with the events of all hosts, in the order of time. */
void fleet_events_serve(struct request *r, const struct event_query *q);
/* Completes a query for the events behind a position. Returns false with *f filled. */
bool event_query_from(struct request *r, const struct event_position *at, struct event_query *q,
		      struct failure *f);

#endif
