// SPDX-License-Identifier: Apache-2.0
/*
 * RUN_DIR/admin.sock, which the warden has made: one command a connection. `ramet` sends its
 * arguments, ends its side, and gets a byte of enum command_status and a text until the end.
 */
#ifndef RAMET_ORCHESTRATOR_ADMIN_ADMIN_H
#define RAMET_ORCHESTRATOR_ADMIN_ADMIN_H

#include "base/err.h"
#include "orchestrator/admin/command.h"
#include "orchestrator/io/loop.h"

struct admin;

/* Serves on the listening socket `fd`, taken over, from the loop's next turn on; `loop` and what
 * `env` points to outlive it. */
int admin_new(struct admin **out, struct loop *loop, int fd, const struct command_env *env,
	      struct err *e);
/* Before loop_free, which waits for the end of what is under way. */
void admin_free(struct admin *a);

#endif
