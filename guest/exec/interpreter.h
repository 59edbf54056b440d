// SPDX-License-Identifier: Apache-2.0
/* An interpreter: the process that runs code, its calls (call.h), and what it has to do between
 * them. */
#ifndef RAMET_GUEST_EXEC_INTERPRETER_H
#define RAMET_GUEST_EXEC_INTERPRETER_H

#include "guest/exec/call.h"

struct interpreter_ops {
	/* The interpreter waits for code, and need not reseed; called before its next call starts.
	 */
	void (*on_idle)(struct interpreter *in);
	void (*on_reseeded)(struct interpreter *in, const struct err *e); /* NULL: success */
	/* The interpreter's process could not be started. The waiting calls have been answered. */
	void (*on_no_start)(struct interpreter *in, const struct err *e);
};

/*
 * Initializes the interpreter, which is zeroed; `grace_ms` as for call_init, `language` and
 * `launch` as for driver_open. interpreter_serve then starts it. Returns 0 or -errno;
 * interpreter_fini releases what it holds.
 */
int interpreter_init(struct interpreter *in, enum agent_language language,
		     const struct driver_launch *launch, unsigned grace_ms,
		     const struct interpreter_ops *ops, struct err *e);
/* Requires interpreter_is_gone. */
void interpreter_fini(struct interpreter *in);
/* Notes that its process was lost with an agent before this one. `how` is the start of a sentence.
 */
void interpreter_note_loss(struct interpreter *in, const char *how);
/* Starts the process if it is not running. If it is idle, gives it its next work: first a reseed,
 * then the next call. */
void interpreter_serve(struct interpreter *in);
/* Handles AGENT_EXEC, AGENT_ATTACH or AGENT_INTERRUPT; `f` may be the one in an AGENT_IN_CONTEXT.
 * Returns 0 or -EPROTO. */
int interpreter_handle(struct interpreter *in, struct conn *c, const struct frame *f,
		       struct err *e);
/* Makes the process reseed before it gets more code. */
void interpreter_reseed(struct interpreter *in, bool user_generators);
/* Replaces its process by a new one. Its running call ends. */
void interpreter_restart(struct interpreter *in);
/* Ends its process for good. Its running call ends; its waiting ones are refused with *gone. */
void interpreter_end(struct interpreter *in, const struct err *gone);
/* Returns true once the process has ended for good and no call has output left to send. */
bool interpreter_is_gone(const struct interpreter *in);

#endif
