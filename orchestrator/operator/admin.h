// SPDX-License-Identifier: Apache-2.0
/*
 * Serves RUN_DIR/admin.sock, which the warden creates. Each connection carries one command:
 * `rametctl` sends its arguments, shuts down its side, and receives a byte of enum command_status,
 * then a text until the end of the stream. The answer to `backup` has a descriptor instead of the
 * text.
 */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_ADMIN_H
#define RAMET_ORCHESTRATOR_OPERATOR_ADMIN_H

#include "base/err.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/operator/command.h"

struct admin;

/* Serves the listening socket `fd` from the loop's next turn on, and takes ownership of it. `loop`
 * and what `env` points to must outlive *out. */
int admin_new(struct admin **out, struct loop *loop, int fd, const struct command_env *env,
	      struct err *e);
/* Closes all connections. Call it before loop_free, which waits for operations in flight. */
void admin_free(struct admin *a);

#endif
