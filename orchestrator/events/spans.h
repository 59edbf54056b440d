// SPDX-License-Identifier: Apache-2.0
/* Sends spans to the collector at otlp_url, in a thread: webhooks, which may wait for hours, do not
 * delay them. */
#ifndef RAMET_ORCHESTRATOR_EVENTS_SPANS_H
#define RAMET_ORCHESTRATOR_EVENTS_SPANS_H

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/events/notify.h"

/* Starts the thread. Both arguments must live as long as the process. */
int spans_start(const struct config *config, struct notify_counters *counters, struct err *e);

#endif
