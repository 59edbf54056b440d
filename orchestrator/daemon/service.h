// SPDX-License-Identifier: Apache-2.0
/* The service: HTTP API and sandbox life on one loop, until it is told to stop. */
#ifndef RAMET_ORCHESTRATOR_DAEMON_SERVICE_H
#define RAMET_ORCHESTRATOR_DAEMON_SERVICE_H

#include "orchestrator/config/config.h"

/* Takes both over: the socket to the warden, and the one that operators' commands come by.
 * Returns the exit status: 0 after an orderly stop, WARDEN_SETUP_EXIT when
 * it can't start (told in the log), 1 when the warden is gone; then the VMs live on. */
int service_run(const struct config *config, int warden_fd, int admin_fd);

#endif
