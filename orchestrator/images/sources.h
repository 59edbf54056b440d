// SPDX-License-Identifier: Apache-2.0
/*
 * Finds out which templates there are. The disk is scanned when the service starts, and then by a
 * worker: periodically, and for each list that a client requests. A list needs a scan that began
 * after its request; all requests during one scan share the next. A create looks for its template
 * itself (source_find).
 */
#ifndef RAMET_ORCHESTRATOR_IMAGES_SOURCES_H
#define RAMET_ORCHESTRATOR_IMAGES_SOURCES_H

#include "base/list.h"
#include "orchestrator/config/failure.h"
#include "orchestrator/images/waiter.h"

struct templates;

/* Requests a scan of the disk, then calls `fn` with NULL, or with the reason why there was none.
 * While the service is stopping, `fn` may be called before this returns. */
void sources_look(struct templates *ts, struct waiter *w,
		  void (*fn)(void *arg, const struct failure *f), void *arg);

#endif
