// SPDX-License-Identifier: Apache-2.0
/* Sends one POST at a time, with libcurl. */
#ifndef RAMET_ORCHESTRATOR_EVENTS_POST_H
#define RAMET_ORCHESTRATOR_EVENTS_POST_H

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/events/line.h"

struct post;

/* Must not run in two threads at the same time. `config` must outlive *out. */
int post_new(struct post **out, const struct config *config, const char *url, struct err *e);
/* Sends a body of JSON and waits for the answer, 30 s at most. `head`: of the line that the body
 * is, which is signed; NULL: the body is not signed. Returns 0 when the answer's status is 2xx. */
int post_send(struct post *p, const struct audit_line *head, const char *body, size_t len,
	      struct err *e);

#endif
