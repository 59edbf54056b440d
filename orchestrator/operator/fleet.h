// SPDX-License-Identifier: Apache-2.0
/* `rametctl fleet`: makes a fleet's certificates, and makes this machine a host of it. */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_FLEET_H
#define RAMET_ORCHESTRATOR_OPERATOR_FLEET_H

#include "orchestrator/config/config.h"

/* argv[0] is "fleet". Returns rametctl's exit status. */
int fleet_command(const struct config *config, int argc, char *const argv[]);

#endif
