// SPDX-License-Identifier: Apache-2.0
/* Spans in the JSON of OTLP (opentelemetry.io, "OTLP/HTTP"). */
#ifndef RAMET_ORCHESTRATOR_EVENTS_OTLP_H
#define RAMET_ORCHESTRATOR_EVENTS_OTLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "orchestrator/events/span.h"

/* Returns whether a packet of `len` bytes is a span. */
bool otlp_is_span(const struct span *s, size_t len);
/* Writes the body of a request with these spans. Each child of a fork has a span, too, to which the
 * fork's span has a link. */
void otlp_write(FILE *out, const struct span *spans, size_t n, const char *version);

#endif
