// SPDX-License-Identifier: Apache-2.0
/*
 * Terminals: sessions, their last output, and the connections that listen to them, type into them
 * or wait for their start. All of it runs in the agent's loop; a program waits for no reader but
 * the agent.
 */
#ifndef RAMET_GUEST_TERMINAL_PTY_H
#define RAMET_GUEST_TERMINAL_PTY_H

#include "guest/conn.h"

/* `cwd_owner` returns the process in whose working directory terminals start; 0: none. */
void pty_init(pid_t (*cwd_owner)(void));
/* Returns true for the types that pty_handle accepts. */
bool pty_takes(uint8_t type);
/* Handles a request. Returns 0 or -EPROTO. */
int pty_handle(struct conn *c, const struct frame *f, struct err *e);

/* Reports of connections; see conn_ops. */
void pty_on_sent(struct conn *c);
void pty_on_gone(struct conn *c);

#endif
