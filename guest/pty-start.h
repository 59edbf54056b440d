// SPDX-License-Identifier: Apache-2.0
/* A program on a new terminal, in a session of its own. */
#ifndef RAMET_GUEST_PTY_START_H
#define RAMET_GUEST_PTY_START_H

#include <sys/types.h>

#include "guest/pty-request.h"

struct pty_started {
	pid_t pid;  /* also the session's id */
	int master; /* non-blocking */
	/* Ends when the program runs; before that it holds an error of pty_start_error. Not
	 * blocking either. */
	int report;
};

/*
 * Forks. `f` is the frame that `r` was read from. The program gets the agent's environment and the
 * request's variables; its folder is r->cwd, from that of the process `beside` on (0: from the home
 * folder). 0 or -errno.
 */
int pty_start(const struct pty_request *r, const struct frame *f, pid_t beside,
	      struct pty_started *out, struct err *e);
/* Reads the report. 1: the program runs; 0: not known yet; -errno with *e filled: it failed. */
int pty_start_result(int report, struct err *e);

#endif
