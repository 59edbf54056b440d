// SPDX-License-Identifier: Apache-2.0
/* Requests on files in the agent: AGENT_PUT to AGENT_MKDIR, AGENT_TREE, AGENT_GROW to AGENT_CHANGE
 * and AGENT_WALK to AGENT_WATCH. */
#ifndef RAMET_GUEST_FILES_FILES_H
#define RAMET_GUEST_FILES_FILES_H

#include "guest/conn.h"
#include "guest/system/system.h"

/* `on_free` is called when a request has ended; then requests of connections in CONN_WAITING can be
 * handled again. */
void files_init(const struct system_ops *sys, void (*on_free)(void));
/* Returns true for the types that files_handle accepts. */
bool files_takes(uint8_t type);
/*
 * Starts a worker for the request. If it has to wait, the connection becomes CONN_WAITING, and the
 * request is to be handled again after on_free. Returns 0 or -EPROTO.
 */
int files_handle(struct conn *c, const struct frame *f, struct err *e);
/* Ends the worker that serves the request of `c`, if one does, because `c` is closed. */
void files_on_gone(struct conn *c);

#endif
