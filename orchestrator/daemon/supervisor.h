// SPDX-License-Identifier: Apache-2.0
/*
 * The first process of rametd. It only starts the warden, restarts it with growing pauses when a
 * signal killed it, passes signals on, and executes the installed program on SIGHUP. VMs continue
 * meanwhile: a warden takes over those of the previous one.
 */
#ifndef RAMET_ORCHESTRATOR_DAEMON_SUPERVISOR_H
#define RAMET_ORCHESTRATOR_DAEMON_SUPERVISOR_H

#include <stdbool.h>

/* Runs `warden` in a child process, whose exit status is its return value. `crashed`: a signal
 * other than SIGKILL ended the previous one. `argv` is that of this program, NULL-terminated, for
 * an upgrade. Returns rametd's exit status when it is to end: that of the last warden, or
 * EXIT_FAILED. */
int supervise(int (*warden)(const void *arg, bool crashed), const void *arg, char *const argv[]);

#endif
