// SPDX-License-Identifier: Apache-2.0
/*
 * Processes: programs that lead sessions of their own, on pipes or on a terminal, with their last
 * output, and the connections that listen to them, write to them or wait for their start. All of it
 * runs in the agent's loop. A program waits for a reader only if that reader asked for it, by
 * `hold` of AGENT_PROC_ATTACH.
 */
#ifndef RAMET_GUEST_PROCESS_PROCESS_H
#define RAMET_GUEST_PROCESS_PROCESS_H

#include "guest/conn.h"

/* `cwd_owner` returns the process in whose working directory programs start; 0: none. `grace_ms`:
 * from SIGTERM to SIGKILL at a time limit. */
void process_init(pid_t (*cwd_owner)(void), unsigned grace_ms);
/* Notes that all processes were lost with an agent before this one; `how` is the start of a
 * sentence, and stays valid. */
void process_note_loss(const char *how);
/* Returns true for the types that process_handle accepts. */
bool process_takes(uint8_t type);
/* Handles a request. Returns 0 or -EPROTO. */
int process_handle(struct conn *c, const struct frame *f, struct err *e);

/* Returns the time until process_on_time has work; -1: none. */
int process_timeout_ms(void);
void process_on_time(void);

/* Reports of connections; see conn_ops. */
void process_on_sent(struct conn *c);
void process_on_gone(struct conn *c);

#endif
