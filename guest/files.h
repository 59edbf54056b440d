// SPDX-License-Identifier: Apache-2.0
/* The operations on files, AGENT_PUT to AGENT_ABORT, AGENT_TREE and AGENT_GROW, from the agent's
 * side. */
#ifndef RAMET_GUEST_FILES_H
#define RAMET_GUEST_FILES_H

#include "guest/conn.h"
#include "guest/system.h"

void files_init(const struct system_ops *sys);
/* True for the requests that files_ask takes. */
bool files_takes(uint8_t type);
/*
 * Starts one, or leaves the connection CONN_WAITING when it is not its turn yet: then it is to be
 * asked again when a worker has ended. 0, or -EPROTO with a sentence.
 */
int files_ask(struct conn *c, const struct frame *f, struct err *e);

#endif
