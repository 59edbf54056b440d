// SPDX-License-Identifier: Apache-2.0
/* The two roles of rametd. The warden is what root starts; it starts the service. */
#ifndef RAMET_ORCHESTRATOR_DAEMON_ROLES_H
#define RAMET_ORCHESTRATOR_DAEMON_ROLES_H

#include "orchestrator/config/config.h"

/* Exit statuses of rametd. */
enum { EXIT_FINE = 0, EXIT_FAILED = 1 };

/* Runs the warden until it is told to stop. Returns the exit status. */
int role_warden(const struct config *config);

/* Runs the service on what the warden passed down (orchestrator/warden/warden.h). Returns the exit
 * status. */
int role_service(void);

#endif
