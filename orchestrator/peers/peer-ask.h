// SPDX-License-Identifier: Apache-2.0
/* The head of a request as another host gets it. Independent of h2o, so that it can be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_PEERS_PEER_ASK_H
#define RAMET_ORCHESTRATOR_PEERS_PEER_ASK_H

#include "orchestrator/ports/port-ask.h"

/* Adds the head to `out`: what the client sent, its address, and `fields`, which end with CRLF.
 * Returns false when method or path can't be sent over HTTP/1. */
bool peer_ask_write(struct text *out, const struct port_ask *ask, const char *fields);

#endif
