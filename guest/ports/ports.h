// SPDX-License-Identifier: Apache-2.0
/*
 * Connections from the host to TCP servers in the guest. Each takes over the host's connection and
 * copies bytes in both directions within the agent's loop, with one buffer per direction: the
 * slower end sets the pace of the faster one.
 */
#ifndef RAMET_GUEST_PORTS_PORTS_H
#define RAMET_GUEST_PORTS_PORTS_H

#include "guest/conn.h"

/* Handles an AGENT_DIAL. Returns 0, or -EPROTO when the connection has to be closed. */
int ports_handle(struct conn *c, const struct frame *f, struct err *e);

#endif
