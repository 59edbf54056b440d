// SPDX-License-Identifier: Apache-2.0
/* The service: the HTTP API and the sandboxes, on one loop. */
#ifndef RAMET_ORCHESTRATOR_DAEMON_SERVICE_H
#define RAMET_ORCHESTRATOR_DAEMON_SERVICE_H

#include "orchestrator/config/config.h"

/* Runs the service until a signal stops it. Takes ownership of `warden_fd`, the socket to the
 * warden, and `admin_fd`, the socket for operators' commands. Returns the exit status: 0 after an
 * orderly stop; WARDEN_SETUP_EXIT when it cannot start, with the reason in the log; 1 when the
 * warden has ended, while the VMs continue. */
int service_run(const struct config *config, int warden_fd, int admin_fd);

#endif
