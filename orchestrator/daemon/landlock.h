// SPDX-License-Identifier: Apache-2.0
/* The files and TCP ports that the service may use. */
#ifndef RAMET_ORCHESTRATOR_DAEMON_LANDLOCK_H
#define RAMET_ORCHESTRATOR_DAEMON_LANDLOCK_H

#include "base/err.h"
#include "orchestrator/config/config.h"

/*
 * Confines this thread, and those it starts, with Landlock. Of the files that the service's user
 * may open, only those named by the settings and those that libraries need remain accessible. With
 * Linux 6.7 or later, the service cannot connect to a TCP port, and can bind only listen_port. Open
 * descriptors stay usable. A kernel without Landlock causes a warning, not an error. Requires
 * no_new_privs.
 */
int landlock_confine(const struct config *config, struct err *e);

#endif
