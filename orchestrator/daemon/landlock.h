// SPDX-License-Identifier: Apache-2.0
/* The files and sockets the service may reach. */
#ifndef RAMET_ORCHESTRATOR_DAEMON_LANDLOCK_H
#define RAMET_ORCHESTRATOR_DAEMON_LANDLOCK_H

#include "base/err.h"
#include "orchestrator/config/config.h"

/*
 * Confines this thread and those it starts with Landlock: of the files that its user may open only
 * those of its settings and what libraries need are left; it can connect to no TCP port, and bind
 * none but listen_port, as far as the kernel knows how (6.7). What is open stays open. A kernel
 * without Landlock is no error: the log tells. Needs no_new_privs.
 */
int landlock_confine(const struct config *config, struct err *e);

#endif
