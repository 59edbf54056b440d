// SPDX-License-Identifier: Apache-2.0
/*
 * Templates: for each source and size an image of a booted guest, from which VMs are restored in
 * milliseconds. An image is found on disk, or made once by booting a guest; one guest boots at a
 * time. The default template and the likeliest sizes are prepared ahead of need, while the service
 * is calm: no request is in flight, nor was one in the last seconds.
 *
 * All functions belong to the loop's thread. Callbacks come from the loop, never from inside the
 * call that asked for them.
 */
#ifndef RAMET_ORCHESTRATOR_IMAGES_TEMPLATES_H
#define RAMET_ORCHESTRATOR_IMAGES_TEMPLATES_H

#include "orchestrator/config/failure.h"
#include "orchestrator/images/sizes.h"
#include "orchestrator/images/template-env.h"
#include "orchestrator/images/template-view.h"
#include "orchestrator/io/deferred.h"
#include "orchestrator/io/disk-job.h"
#include "proto/ctl.h"

struct templates; /* all templates of the service */
struct template;  /* one source in one size */

/* --- all templates --------------------------------------------------------------------------- */

/* Returns an object without templates, which templates_start adds. */
struct templates *templates_new(const struct template_env *env);
/* Removes incomplete images that a previous instance left, scans the disk for templates, and starts
 * to prepare the default one. Uses files on the calling thread. */
void templates_start(struct templates *ts);
/* Gives up builds, and fails everybody who waits with FAIL_STOPPING. Nothing is prepared after
 * that. */
void templates_close(struct templates *ts);
/* Frees all templates, whoever holds them. NULL is fine. */
void templates_free(struct templates *ts);

/* Returns the default template; not NULL after templates_start. */
struct template *templates_default(const struct templates *ts);
/* Returns the template whose guest is being booted, or NULL. */
struct template *templates_building(const struct templates *ts);
/* Returns whether an image is being made, or prepared ahead of need. */
bool templates_preparing(const struct templates *ts);
/* Returns how many images this instance has made. */
uint64_t templates_boots(const struct templates *ts);
/* Returns how many of them were of a size that is not prepared ahead. */
uint64_t templates_unlisted(const struct templates *ts);
/* Calls `each` for every template that the last scan of the disk found: the default one first, the
 * others by name. */
void templates_list(struct templates *ts, void (*each)(void *arg, const struct template_view *view),
		    void *arg);

/* Pauses or gives up background work, because a request or a sandbox needs the host. */
void templates_work_began(struct templates *ts);
/* Restarts the time after which the service is calm. */
void templates_work_ended(struct templates *ts);
/* Returns whether background work may run: no request is in flight, nor was one in the last
 * seconds. */
bool templates_calm(const struct templates *ts);
/*
 * Prepares what is likely to be requested, one image at a time. `full`: all images that are ready
 * have their warm sandboxes. Returns the milliseconds after which to call it again; 0 means not
 * before something has changed.
 */
uint64_t templates_ahead(struct templates *ts, bool full);
/* Returns the maximum number of images that are made ahead of need. */
size_t templates_ahead_count(const struct templates *ts);
/* Gives up the build in progress if nobody waits for it, so that its slot becomes free. Returns
 * false if there is no such build. */
bool templates_yield(struct templates *ts);
/* Looks for new templates, on a worker. Called periodically. */
void templates_housekeeping(struct templates *ts);

/* --- one template ----------------------------------------------------------------------------- */

/* Returns the template made from `from` in this size, and adds it if it is new. The caller gives it
 * back with template_put; a template that nobody holds may be forgotten. Returns NULL when too many
 * templates are in use. */
struct template *template_get(struct templates *ts, const struct source *from,
			      const struct size *size);
struct template *template_hold(struct template *t);
void template_put(struct template *t);

bool template_ready(const struct template *t);
/* Returns why the template has failed; empty while it is ready or in preparation. */
const char *template_error(const struct template *t);
const struct size *template_size(const struct template *t);
const struct source *template_source(const struct template *t);
/* Returns whether nobody waits for the template, so that its build yields to all other work. */
bool template_is_background(const struct template *t);

/* A wait for a template. Embedded in its owner; zeroed before first use. */
struct template_wait {
	struct list link;
	struct deferred deferred;
	struct template *template;
	void (*fn)(void *arg, const struct failure *f);
	void *arg;
	struct failure failure;
	bool failed;
};
/* Calls `fn` once the template is ready (`f` is NULL) or has failed; prepares it if needed. */
void template_wait(struct template *t, struct template_wait *w,
		   void (*fn)(void *arg, const struct failure *f), void *arg);
/* Cancels a wait; does nothing if `w` does not wait. */
void template_unwait(struct template_wait *w);

/* --- restores --------------------------------------------------------------------------------- */

#define TEMPLATE_FDS	5 /* descriptors that a restore needs, in CTL_FILL's order */
#define TEMPLATE_MEMORY 1 /* the index of the memory file among them, as in every image */
#define TEMPLATE_BASE	2 /* the index of the root file system */

/* Starts a job that opens the TEMPLATE_FDS files of a restore. The last is an empty disk layer. */
struct disk_job *template_open(struct template *t, void (*done)(void *arg, struct disk_job *job),
			       void *arg);
/* Starts a job that opens the memory file of a ready template: one descriptor. */
struct disk_job *template_open_memory(struct template *t,
				      void (*done)(void *arg, struct disk_job *job), void *arg);
/* Notes that one of these jobs failed with `error` (-errno). An image with a missing file is made
 * anew. */
void template_open_failed(struct template *t, int error);
/* Fills in the CTL_FILL message of a restore with a disk of `rootfs_gb`. */
void template_fill(uint32_t rootfs_gb, struct ctl_msg *fill);
/* Notes how a restore went: an image that was found on disk and repeatedly fails is made anew.
 * Failures while the disk is full don't count. */
void template_restored(struct template *t, bool well);

/* The mode of a template's files once they are complete. No file of a VM has this mode, and a VM
 * process can't set it, since it runs as another user. */
#define TEMPLATE_FILE_MODE 0400

#endif
