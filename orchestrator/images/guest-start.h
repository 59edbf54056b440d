// SPDX-License-Identifier: Apache-2.0
/* Makes the messages for every guest that starts from an image: its identity, and calls that warm
 * it up. */
#ifndef RAMET_ORCHESTRATOR_IMAGES_GUEST_START_H
#define RAMET_ORCHESTRATOR_IMAGES_GUEST_START_H

#include "orchestrator/agent/agent.h"

/* Encodes the request that makes a restored guest unique. Its host name becomes "ramet-" and the
 * first 8 characters of `name`. */
struct agent_bytes reseed_bytes(const char *name, bool user_generators);

/* Calls whose only effect is that the guest loads and touches the code and data of a first call. */
#define PRIMING_CALLS 2
extern const struct agent_exec priming_calls[PRIMING_CALLS];

#endif
