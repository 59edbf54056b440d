// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_PORTS_RELAY_H
#define RAMET_GUEST_PORTS_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#define RELAYS_MAX 128 /* each has up to 128 KiB of buffers */

/* Returns whether fewer than RELAYS_MAX relays exist. */
bool relay_has_room(void);
/* Connects to the port, answers AGENT_DONE or AGENT_ERROR on `host`, and copies bytes until both
 * directions have ended. Takes ownership of `host`, a connection on which no bytes are pending. */
void relay_start(int host, uint16_t port);

#endif
