// SPDX-License-Identifier: Apache-2.0
/* Private declarations of this room. */
#ifndef RAMET_ORCHESTRATOR_PORTS_INTERNAL_H
#define RAMET_ORCHESTRATOR_PORTS_INTERNAL_H

#include "orchestrator/ports/state.h"

/* Reads the shares of a sandbox from its catalogue row. Ignores what is malformed. */
void shares_read(struct ports_sandbox *p, const char *text);

/* Ends all connections of the sandbox with `f`. */
void tunnels_fail(struct sandbox *s, const struct failure *f);
/* Ends the connections that were made by means of the port's share. */
void tunnels_end_shared(struct sandbox *s, uint16_t port);
/* Frees the connections without reporting their ends. */
void tunnels_free(struct sandbox *s);

#endif
