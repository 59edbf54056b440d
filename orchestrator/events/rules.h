// SPDX-License-Identifier: Apache-2.0
/* Which events are sent, and when a failed delivery is retried. */
#ifndef RAMET_ORCHESTRATOR_EVENTS_RULES_H
#define RAMET_ORCHESTRATOR_EVENTS_RULES_H

#include <stdbool.h>
#include <stdint.h>

#define RETRY_FIRST_MS 1000
#define RETRY_MOST_MS  (300 * 1000)
#define GIVE_UP_MS     (24ll * 3600 * 1000)

/* Returns whether the list ("sandbox.*,key.created", blanks allowed) matches the event. */
bool rules_want(const char *list, const char *event);
/* Returns how long to wait after a number of consecutive failures (1: the first). The time doubles
 * up to RETRY_MOST_MS; the random number `chance` selects between half and all of it, so that
 * senders do not retry in step. */
uint32_t rules_wait_ms(unsigned failures, uint32_t chance);

#endif
