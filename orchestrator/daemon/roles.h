// SPDX-License-Identifier: Apache-2.0
/* The two roles of rametd: root starts the warden, and the warden starts the service. */
#ifndef RAMET_ORCHESTRATOR_DAEMON_ROLES_H
#define RAMET_ORCHESTRATOR_DAEMON_ROLES_H

#include <stdbool.h>

#include "orchestrator/config/config.h"

struct warden_record;

/* Exit statuses of rametd. */
enum { EXIT_FINE = 0, EXIT_FAILED = 1, EXIT_SETTINGS = 2 };

/* Runs the warden until a signal stops it. `crashed`: a signal other than SIGKILL ended the
 * previous one. Returns the exit status. */
int role_warden(const struct config *config, struct warden_record *record, bool crashed);

/* Runs the service with the descriptors from the warden (orchestrator/warden/warden.h). Returns the
 * exit status. */
int role_service(void);

#endif
