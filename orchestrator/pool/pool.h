// SPDX-License-Identifier: Apache-2.0
/*
 * The pool: blank VMs and warm sandboxes, made ahead of need, so that a create finds a VM that is
 * ready. Each bucket holds the warm sandboxes of one template and disk size. The default template
 * and the images prepared ahead have permanent buckets; other requested templates have one for a
 * while.
 */
#ifndef RAMET_ORCHESTRATOR_POOL_POOL_H
#define RAMET_ORCHESTRATOR_POOL_POOL_H

#include "orchestrator/images/sizes.h"
#include "orchestrator/images/template-env.h"

struct pool;
struct template;
struct templates;
struct vm_bringup;

/* Returns a pool that makes nothing before pool_start. */
struct pool *pool_new(const struct template_env *env, struct templates *templates);
/* Starts to fill the pool. Called after templates_start. */
void pool_start(struct pool *p);
/* Drops everything in the pool, which makes nothing from then on. */
void pool_close(struct pool *p);
/* Frees a pool that is closed. NULL is fine. */
void pool_free(struct pool *p);

/* Makes the pool check soon whether it lacks a blank VM or a warm sandbox, for instance because an
 * image is ready. */
void pool_check(struct pool *p);
/* Pauses or gives up background work, also that of the templates, because a request or a sandbox
 * needs the host. */
void pool_work_began(struct pool *p);
/* Keeps warm sandboxes of the template with disks of this size permanently, if the pool has room
 * for them. */
void pool_keep(struct pool *p, struct template *t, uint32_t rootfs_gb);
/* Takes a blank VM and reduces it to this size. Returns NULL when none is large enough. */
struct vmproc *pool_take_blank(struct pool *p, const struct size *size);
/* Takes a warm sandbox; NULL when there is none. Remembers for a while that it was requested. */
struct vm_bringup *pool_take_warm(struct pool *p, struct template *t, uint32_t rootfs_gb);
/* Drops the least valuable blank VM or warm sandbox, because somebody waits for a slot. Returns
 * false when the pool is empty. */
bool pool_yield(struct pool *p);

/* Lets the children of a large fork run their first calls: for `ms`, or until no VM has a head
 * start any more, the pool makes only the first few blank VMs that it lacks. */
void pool_rest(struct pool *p, uint64_t ms);

struct pool_stats {
	uint32_t blanks, warm; /* blank VMs and warm sandboxes that are ready */
	uint32_t warm_default; /* how many of `warm` have the default template */
};
void pool_stats(const struct pool *p, struct pool_stats *out);
/* Reports how many warm sandboxes each bucket has. Not before pool_start. */
void pool_warm(const struct pool *p,
	       void (*each)(void *arg, const struct template *t, uint32_t rootfs_gb, uint32_t n),
	       void *arg);
/* Returns true once the pool has held a warm sandbox of the default template, or if it is
 * configured to hold none. */
bool pool_was_filled(const struct pool *p);

#endif
