// SPDX-License-Identifier: Apache-2.0
/* What a program sees of the host's file system. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_VIEW_H
#define RAMET_ORCHESTRATOR_WARDEN_VIEW_H

#include <stddef.h>

#include "base/err.h"

#define VIEW_PATHS_MAX 24

/*
 * Hides /run from this process and its children, in a mount namespace of their own: Landlock does
 * not limit to which Unix sockets a program connects, and /run has the sockets of the host's
 * services. Folders and files below /run that `kept` names stay visible. A path in `kept` that is
 * empty, missing or elsewhere is ignored. Requires root. Returns 0, or -errno with *e filled.
 */
int view_hide_run(const char *const *kept, size_t n, struct err *e);

#endif
