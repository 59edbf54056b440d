// SPDX-License-Identifier: Apache-2.0
/*
 * Copies of memory files that one tenant has for itself. VMs map their image's memory, so tenants
 * whose VMs come from one image share pages of the host's cache, and can tell by their timing which
 * of these another one reads (Flush+Reload). A file of its own has pages of its own.
 *
 * A copy is made when the tenant first needs it, used for all its VMs from that image, and removed
 * when the tenant has had no sandbox for a while. It has a name in STATE_DIR/private as long as a
 * VM may be made from it, for a VM process takes no memory file without one.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_PRIVATE_H
#define RAMET_ORCHESTRATOR_CORE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/list.h"
#include "orchestrator/core/core.h"

struct private_copy;

struct private_wait {
	struct list link;
	void (*fn)(void *arg, const struct failure *f);
	void *arg;
};

/* True when the tenant's VMs are to have no memory file of others. */
bool tenant_is_private(const struct core *c, const char *tenant);

/*
 * True when the tenant has its copy of the memory file `fd`, or `fd` is its own. Else one is made,
 * and `fn` comes from the loop: *f is NULL, or says why there is none. *st is of `fd`, by the
 * worker that opened it.
 */
bool private_ready(struct core *c, const char *tenant, int fd, const struct stat *st,
		   struct private_wait *w, void (*fn)(void *arg, const struct failure *f),
		   void *arg);
/* Forgets a wait, if it is one. */
void private_unwait(struct private_wait *w);
/* Replaces *fd by the tenant's copy of that file, which is open already. 0, or -errno with *e
 * filled. */
int private_take(struct core *c, const char *tenant, int *fd, const struct stat *st, struct err *e);
/* Bytes of the tenant's copies. */
uint64_t private_bytes(const struct core *c, const char *tenant);

/* Removes what a previous instance left for tenants without sandboxes, and keeps the rest. */
void privates_load(struct core *c);
/* Every now and then: removes copies that are not used any more. */
void privates_check(struct core *c);
void privates_free(struct core *c);

#endif
