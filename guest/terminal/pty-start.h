// SPDX-License-Identifier: Apache-2.0
/* Starts a program on a new terminal, in a session of its own. */
#ifndef RAMET_GUEST_TERMINAL_PTY_START_H
#define RAMET_GUEST_TERMINAL_PTY_START_H

#include <sys/types.h>

#include "guest/terminal/pty-request.h"

struct pty_started {
	pid_t pid;  /* the program's, also the session's id */
	int master; /* non-blocking */
	/* Non-blocking. End of file: the program runs; otherwise it holds an error for
	 * pty_start_result. */
	int report;
};

/*
 * Forks the program's process. `f` is the frame from which `r` was parsed. The program gets the
 * agent's environment and the request's variables; its working directory is r->cwd, relative to
 * that of the process `cwd_owner` (0: to the home directory). Returns 0 or -errno.
 */
int pty_start(const struct pty_request *r, const struct frame *f, pid_t cwd_owner,
	      struct pty_started *out, struct err *e);
/* Reads the report. Returns 1 when the program runs, 0 when that is not known yet, -errno when the
 * start failed. */
int pty_start_result(int report, struct err *e);

#endif
