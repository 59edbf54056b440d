// SPDX-License-Identifier: Apache-2.0
/* The two directories rametd works in. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_DIRECTORY_H
#define RAMET_ORCHESTRATOR_WARDEN_DIRECTORY_H

#include "base/err.h"
#include "orchestrator/warden/account.h"

/*
 * Opens the absolute `path`, made with its parents when it is missing (mode 0750, of root and
 * `gid`). One that is there already must be root's, closed to writers, and open to `gid`.
 */
int directory_for_root(const char *path, gid_t gid, struct err *e);

/* As above (mode 0700) for a directory that belongs to the account. One that is root's and empty
 * is handed over. */
int directory_for_account(const char *path, struct account account, struct err *e);

/* As above (mode 02750); `readers` may read it and the files made in it, which get its group. */
int directory_for_readers(const char *path, struct account account, gid_t readers, struct err *e);

#endif
