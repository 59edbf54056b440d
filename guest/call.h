// SPDX-License-Identifier: Apache-2.0
/* The calls: a queue of EXECs, the one that runs, its output, its time limit and its end. */
#ifndef RAMET_GUEST_CALL_H
#define RAMET_GUEST_CALL_H

#include <stdbool.h>

#include "guest/conn.h"

/*
 * `grace_ms`: between SIGINT at the time limit, SIGKILL to the code, and SIGKILL to the driver.
 * `on_end` is called after each call, when the next one may start.
 */
void call_init(unsigned grace_ms, void (*on_end)(void));

/* Queues the connection whose `in` holds a checked AGENT_EXEC (c->exec). */
void call_queue(struct conn *c);
/* Takes a frame of a connection in CONN_CODE. 0, or -EPROTO with a sentence. */
int call_code(struct conn *c, const struct frame *f, struct err *e);
/*
 * The rest of the last call's output from byte `from` on, and its end, go to `c`. 0, or the answer
 * of AGENT_ATTACH when that can't be.
 */
int call_attach(struct conn *c, const struct attach_request *r, struct err *e);
/* Somebody waits for the running call: if its host is gone, it is not waited for any more. */
void call_hurry(void);
/* SIGINT for the call that runs or is about to; nothing without one. */
void call_interrupt(void);

/* The driver waits for code: starts the next call, if there is one. */
void call_next(void);
bool call_is_active(void);
/* Ends every queued call with AGENT_ERROR: Python can't be started. */
void call_refuse_all(const struct err *e);

/* What connections and driver report; see conn_ops and driver_ops. */
void call_on_sent(struct conn *c);
void call_on_gone(struct conn *c);
void call_on_driver_sent(void);
void call_on_started(pid_t bash_group);
void call_on_exit(int32_t code, const uint8_t *last, size_t last_len);
void call_on_driver_gone(int status, const struct err *e);

/* For how long the running call's code has had the interpreter. 0: none runs. */
int64_t call_ran_ms(void);
/* Milliseconds until call_on_time is to be called, -1: no limit runs. */
int call_timeout_ms(void);
void call_on_time(void);

#endif
