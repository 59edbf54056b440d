// SPDX-License-Identifier: Apache-2.0
/* Calls: the queue of AGENT_EXECs, and the running call with its output, time limit and end. */
#ifndef RAMET_GUEST_EXEC_CALL_H
#define RAMET_GUEST_EXEC_CALL_H

#include <stdbool.h>

#include "guest/conn.h"
#include "guest/exec/driver.h"

/*
 * Opens the pipes for output. `grace_ms` passes between SIGINT at the time limit, SIGKILL to the
 * code, and SIGKILL to the driver. `on_end` is called after each call, when the next one may start.
 * Returns 0 or -errno.
 */
int call_init(unsigned grace_ms, void (*on_end)(void), struct err *e);
/* Returns the pipes for driver_init. */
struct driver_pipes call_pipes(void);

/* Queues the connection whose `in` holds a checked AGENT_EXEC (c->exec). */
void call_queue(struct conn *c);
/* Takes a frame of a connection in CONN_CODE. Returns 0 or -EPROTO. */
int call_code(struct conn *c, const struct frame *f, struct err *e);
/* Sends the last call's output from byte r->have on, and its end, to `c`. Returns 0, or the error
 * with which AGENT_ATTACH is answered. */
int call_attach(struct conn *c, const struct attach_request *r, struct err *e);
/* If the running call has no client, lets its code write without waiting for one, because another
 * request waits for the call. */
void call_drop_backpressure(void);
/* Sends SIGINT to the call that runs or is about to; does nothing without one. */
void call_interrupt(void);

/* Starts the next queued call, if there is one. Called when the driver waits for code. */
void call_next(void);
bool call_is_active(void);
/* Answers every queued call with AGENT_ERROR: Python cannot be started. */
void call_refuse_all(const struct err *e);

/* Process events of connections and of the driver, as described at conn_ops and driver_ops. */
void call_on_sent(struct conn *c);
void call_on_gone(struct conn *c);
void call_on_driver_sent(void);
void call_on_started(pid_t bash_group);
void call_on_exit(int32_t code, const uint8_t *last, size_t last_len);
void call_on_driver_gone(int status, const struct err *e);

/* Returns the milliseconds until call_on_time has to be called; -1: nothing is due. */
int call_timeout_ms(void);
/* Enforces the time limit and sends output that is due; called after each event. */
void call_on_time(void);

#endif
