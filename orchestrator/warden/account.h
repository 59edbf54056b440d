// SPDX-License-Identifier: Apache-2.0
/* Who a process is, and how it gives up being root for good. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_ACCOUNT_H
#define RAMET_ORCHESTRATOR_WARDEN_ACCOUNT_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct account {
	uid_t uid;
	gid_t gid;
};

/* The account called `name`, or the one whose uid and gid are that number. Never root. */
int account_find(struct account *out, const char *name, struct err *e);

/* That of ramet-notify: behind those of the VMs, which begin at `vm_uid_base`. */
struct account account_of_notify(uint32_t vm_uid_base);

/*
 * Becomes uid and gid with no other groups, no capability in any set, and no way to gain one by
 * exec. Called between clone and exec; the caller was root.
 */
int account_become(uid_t uid, gid_t gid, struct err *e);

#endif
