// SPDX-License-Identifier: Apache-2.0
/*
 * Terminals: the sessions, what they wrote last, and the connections that listen to them, type into
 * them or wait for their start. All in the agent's loop; a program waits for nobody but the agent.
 */
#ifndef RAMET_GUEST_PTY_H
#define RAMET_GUEST_PTY_H

#include "guest/conn.h"

/* True for the requests that pty_ask takes. */
bool pty_takes(uint8_t type);
/* 0, or -EPROTO with a sentence. */
int pty_ask(struct conn *c, const struct frame *f, struct err *e);

/* What connections report; see conn_ops. */
void pty_on_sent(struct conn *c);
void pty_on_gone(struct conn *c);

#endif
