// SPDX-License-Identifier: Apache-2.0
/*
 * Finds out which templates there are: a worker looks at the disk when the service starts,
 * periodically, and for each list that a client requests. A list needs a look that began after the
 * request; all that are requested during one look share the next. A create looks for its template
 * itself.
 */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_SOURCES_H
#define RAMET_ORCHESTRATOR_TEMPLATE_SOURCES_H

#include "base/list.h"
#include "orchestrator/failure/failure.h"

struct templates;

/* A wait for a look at the disk. Embedded in its owner; zeroed before first use. */
struct sources_wait {
	struct list link;
	void (*fn)(void *arg, const struct failure *f);
	void *arg;
};

/* Looks at the disk, then calls `fn` with NULL, or with the reason why nobody could look. While the
 * service is stopping, `fn` may be called before this returns. */
void sources_look(struct templates *ts, struct sources_wait *w,
		  void (*fn)(void *arg, const struct failure *f), void *arg);
/* Cancels a wait; does nothing if `w` does not wait. */
void sources_unwait(struct sources_wait *w);

#endif
