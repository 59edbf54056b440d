// SPDX-License-Identifier: Apache-2.0
/*
 * The pool: blank VMs and warm sandboxes, made ahead of need, so that a create finds a VM that is
 * ready. Buckets hold the warm sandboxes of one template and disk size each: the default template
 * and the images prepared ahead have one for good, what clients request has one for a while.
 */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_POOL_H
#define RAMET_ORCHESTRATOR_TEMPLATE_POOL_H

#include "orchestrator/template/sizes.h"
#include "orchestrator/template/template-env.h"

struct pool;
struct privates;
struct template;
struct templates;
struct vm_bringup;

/* Returns a pool that makes nothing before pool_start. `templates` tell it when an image is ready;
 * VMs of tenants with private memory map the copies of `privates`. */
struct pool *pool_new(const struct template_env *env, struct templates *templates,
		      struct privates *privates);
/* Starts to fill the pool; after templates_start. */
void pool_start(struct pool *p);
/* Drops all that is in the pool, and makes nothing from here on. */
void pool_close(struct pool *p);
/* Frees a pool that is closed. NULL is fine. */
void pool_free(struct pool *p);

/* Checks soon whether something is missing. */
void pool_check(struct pool *p);
/* Takes a blank VM and gives it this size. Returns NULL when there is none that fits. */
struct vmproc *pool_take_blank(struct pool *p, const struct size *size);
/* Takes a warm sandbox; NULL when there is none. Remembers for a while that it was requested. */
struct vm_bringup *pool_take_warm(struct pool *p, struct template *t, uint32_t rootfs_gb);
/* Drops the blank VM or warm sandbox that is worth least, since somebody waits for its slot.
 * Returns false when the pool is empty. */
bool pool_yield(struct pool *p);

struct pool_stats {
	uint32_t blanks, warm; /* ready */
	uint32_t warm_default; /* of `warm`, those of the default template */
};
void pool_stats(const struct pool *p, struct pool_stats *out);
/* Returns false until the pool has held the first warm sandbox of the default template, if it is
 * configured to hold any. */
bool pool_was_filled(const struct pool *p);

#endif
