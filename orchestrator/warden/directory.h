// SPDX-License-Identifier: Apache-2.0
/* Creates and checks the directories that rametd works in. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_DIRECTORY_H
#define RAMET_ORCHESTRATOR_WARDEN_DIRECTORY_H

#include "base/err.h"
#include "orchestrator/warden/account.h"

/*
 * Opens the directory at the absolute `path`. A missing one is created with its parents (mode 0750,
 * owned by root and `gid`). An existing one must be owned by root, not writable by others, and
 * accessible to `gid`. Returns a descriptor, or -errno with *e filled.
 */
int directory_for_root(const char *path, gid_t gid, struct err *e);

/* Like directory_for_root (mode 0700), for a directory that belongs to the account. An empty one
 * that root owns is given to the account. */
int directory_for_account(const char *path, struct account account, struct err *e);

/* Find out whether the functions above would refuse the directory at `path`, and change nothing. A
 * missing one is fine. Return 0, or -errno with *e filled. directory_look_for_account returns 1 if
 * the directory is the account's already, so that something may be in it. */
int directory_look_for_root(const char *path, gid_t gid, struct err *e);
int directory_look_for_account(const char *path, struct account account, struct err *e);

#endif
