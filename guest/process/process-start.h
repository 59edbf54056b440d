// SPDX-License-Identifier: Apache-2.0
/* Starts a program in a session of its own, on pipes or on a new terminal. */
#ifndef RAMET_GUEST_PROCESS_PROCESS_START_H
#define RAMET_GUEST_PROCESS_PROCESS_START_H

#include <sys/types.h>

#include "guest/process/process-request.h"

struct process_started {
	pid_t pid; /* the program's, also the session's id */
	/* The agent's ends of stdin, stdout and stderr, non-blocking; -1: none. With a terminal,
	 * the second is its master. */
	int fd[3];
	/* Non-blocking. End of file: the program runs; otherwise it holds an error for
	 * process_start_result. */
	int report;
};

/*
 * Forks the program's process. `f` is the frame from which `r` was parsed. The program gets the
 * agent's environment and the request's variables; its working directory is r->cwd, relative to
 * the home directory of r->user, or without a user to the working directory of the process
 * `cwd_owner` (0: to the home directory). Returns 0 or -errno.
 */
int process_start(const struct process_request *r, const struct frame *f, pid_t cwd_owner,
		  struct process_started *out, struct err *e);
/* Reads the report. Returns 1 when the program runs, 0 when that is not known yet, -errno when the
 * start failed. */
int process_start_result(int report, struct err *e);

#endif
