// SPDX-License-Identifier: Apache-2.0
/*
 * The first process of rametd. It only starts the warden, restarts it with growing pauses when a
 * signal killed it, passes signals on, and executes the installed program on SIGHUP. VMs continue
 * meanwhile: the next warden takes over the VMs of the previous one.
 */
#ifndef RAMET_ORCHESTRATOR_DAEMON_SUPERVISOR_H
#define RAMET_ORCHESTRATOR_DAEMON_SUPERVISOR_H

#include <stdbool.h>

/* Runs `warden` in a child process, which exits with what `warden` returns. `crashed`: a signal
 * other than SIGKILL ended the previous child. `argv`: the arguments of this program,
 * NULL-terminated, for executing an upgraded one. Returns when rametd is to end, with its exit
 * status: the last child's, or EXIT_FAILED. */
int supervise(int (*warden)(const void *arg, bool crashed), const void *arg, char *const argv[]);

#endif
