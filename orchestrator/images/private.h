// SPDX-License-Identifier: Apache-2.0
/*
 * Private copies of memory files, one set for each tenant. VMs map their image's memory, so tenants
 * whose VMs come from one image share pages of the host's page cache, and can tell by timing which
 * of these another tenant reads (Flush+Reload). A private copy has separate pages.
 *
 * A copy is made when the tenant first needs it, used for all the tenant's VMs from that image, and
 * removed when the tenant has had no sandbox for a while. It has a name in STATE_DIR/private as
 * long as a VM may be made from it, because a VM process accepts no memory file without a name.
 */
#ifndef RAMET_ORCHESTRATOR_IMAGES_PRIVATE_H
#define RAMET_ORCHESTRATOR_IMAGES_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/list.h"
#include "orchestrator/config/failure.h"
#include "orchestrator/images/template-env.h"
#include "orchestrator/images/waiter.h"

#define PRIVATE_TENANT_MAX 20 /* bytes of a tenant's name */

struct privates; /* the copies of all tenants */

struct privates *privates_new(const struct template_env *env);
/* Removes a previous instance's copies for tenants without sandboxes, and adopts the rest. */
void privates_load(struct privates *all);
/* Removes copies that are no longer used. Called periodically. */
void privates_check(struct privates *all);
/* Forgets all copies, without removing their files. NULL is fine. */
void privates_free(struct privates *all);

/*
 * Returns true when the tenant has a copy of the memory file `fd`, when `fd` is such a copy, or
 * when no copy can be started (then private_take fails). Otherwise a copy is being made and `fn` is
 * called from the loop; its `f` is NULL on success. `st` is the stat of `fd`, from the worker that
 * opened it.
 */
bool private_ready(struct privates *all, const char *tenant, int fd, const struct stat *st,
		   struct waiter *w, void (*fn)(void *arg, const struct failure *f), void *arg);
/* Replaces *fd, the memory file, with a descriptor of the tenant's copy and closes the old one.
 * Keeps an *fd that is such a copy already. Returns 0, or -errno with *e filled. */
int private_take(struct privates *all, const char *tenant, int *fd, const struct stat *st,
		 struct err *e);
/* Returns the disk space of the tenant's copies, in bytes. */
uint64_t private_bytes(const struct privates *all, const char *tenant);

#endif
