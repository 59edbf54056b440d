// SPDX-License-Identifier: Apache-2.0
/* Writes the catalogue (the database that store/ manages) to disk. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_CATALOGUE_H
#define RAMET_ORCHESTRATOR_SANDBOX_CATALOGUE_H

#include <stddef.h>

#include "base/err.h"
#include "orchestrator/io/deferred.h"

struct service;

/* The state of catalogue.c. */
struct catalogue {
	struct catalogue_job *job; /* in progress, or NULL */
	struct loop_timer timer;   /* for the next job */
	uint32_t retry_ms;	   /* retry delay after a failed job; else 0 */
	uint64_t behind_since_ms;  /* loop ms of the first change not on disk; 0: all are */
	struct list syncs;	   /* struct catalogue_sync, in order */
	struct deferred sync_deferred;
};

/* Opens the catalogue and sets c->store. Returns 0, or -errno with *e filled. */
int catalogue_open(struct service *c, struct err *e);
/* Writes all changes to disk and closes the catalogue. A job in progress does this at its end. */
void catalogue_close(struct service *c);
/* Returns a sentence, stored in `text`, when the disk has lagged behind for too long; else NULL. */
const char *catalogue_error(const struct service *c, char *text, size_t size);

/* Waits until the catalogue's current contents are on disk and survive a power cut. Then `fn`
 * (may be NULL) is called from the loop with 0, or with -errno after a failure; never after
 * catalogue_sync_cancel. */
struct catalogue_sync;
typedef void catalogue_sync_fn(void *arg, int error);
struct catalogue_sync *catalogue_sync(struct service *c, catalogue_sync_fn *fn, void *arg);
void catalogue_sync_cancel(struct catalogue_sync *sync);

#endif
