// SPDX-License-Identifier: Apache-2.0
/* The catalogue: its file on the disk, and copies of it. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_CATALOGUE_H
#define RAMET_ORCHESTRATOR_SANDBOX_CATALOGUE_H

#include <stddef.h>

#include "base/err.h"
#include "orchestrator/io/deferred.h"

struct core;

/* The state of catalogue.c. */
struct catalogue {
	struct catalogue_job *job; /* in progress, or NULL */
	struct loop_timer timer;   /* for the next job */
	uint32_t retry_ms;	   /* retry delay after a failed job; else 0 */
	uint64_t behind_since_ms;  /* loop ms since the disk lags behind; 0: it does not */
	struct list syncs;	   /* struct catalogue_sync, in order */
	struct deferred sync_deferred;
};

/* Opens the catalogue and sets c->store. */
int catalogue_open(struct core *c, struct err *e);
/* Writes what is not on disk yet; the job in progress does it, if there is one. */
void catalogue_close(struct core *c);
/* Returns the catalogue's error, formatted in `text` where needed, or NULL. */
const char *catalogue_error(const struct core *c, char *text, size_t size);

/* Waits until the catalogue's current contents are on disk and survive a power cut. `fn` comes from
 * the loop with 0 or -errno, and never after a cancel. */
struct catalogue_sync;
typedef void catalogue_sync_fn(void *arg, int error);
struct catalogue_sync *catalogue_sync(struct core *c, catalogue_sync_fn *fn, void *arg);
void catalogue_sync_cancel(struct catalogue_sync *sync);

/* Cancels the backups; the core is being freed. */
void backups_free(struct core *c);
/* Removes the files of a backup that a kill interrupted. */
void backup_sweep(const struct core *c);

#endif
