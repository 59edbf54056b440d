// SPDX-License-Identifier: Apache-2.0
/* Accounts of processes, and how a process gives up root for good. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_ACCOUNT_H
#define RAMET_ORCHESTRATOR_WARDEN_ACCOUNT_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct account {
	uid_t uid;
	gid_t gid;
};

/* Finds the account `name`. A name that is a number is used as uid and gid. Refuses root. */
int account_find(struct account *out, const char *name, struct err *e);

/* Returns the account of ramet-notify: the uid after those of the VMs, which begin at
 * `vm_uid_base`. */
struct account account_of_notify(uint32_t vm_uid_base);

/*
 * Changes to uid and gid with no other groups, no capability in any set, and no way to gain one by
 * exec. Called between clone and exec, as root.
 */
int account_become(uid_t uid, gid_t gid, struct err *e);

#endif
