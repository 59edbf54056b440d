// SPDX-License-Identifier: Apache-2.0
/* Which events are sent, and when one is tried again. */
#ifndef RAMET_ORCHESTRATOR_NOTIFY_RULES_H
#define RAMET_ORCHESTRATOR_NOTIFY_RULES_H

#include <stdbool.h>
#include <stdint.h>

#define RETRY_FIRST_MS 1000
#define RETRY_MOST_MS  (300 * 1000)
#define GIVE_UP_MS     (24ll * 3600 * 1000)

/* Whether the list ("sandbox.*,key.made", blanks allowed) has the event. */
bool rules_want(const char *list, const char *event);
/* How long to wait after so many failures in a row (1: the first): it doubles up to RETRY_MOST_MS,
 * of which a part between half and all is taken, by `chance`, so that senders do not come in step.
 */
uint32_t rules_wait_ms(unsigned failures, uint32_t chance);

#endif
