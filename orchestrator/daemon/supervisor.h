// SPDX-License-Identifier: Apache-2.0
/*
 * The first process of rametd. It does nothing but start the warden, wait, start it again with
 * growing pauses when a signal ended it, pass signals on, and become the program that is installed
 * now when it is told to (SIGHUP). VMs go on all the while: a warden takes over those of the one
 * before it.
 */
#ifndef RAMET_ORCHESTRATOR_DAEMON_SUPERVISOR_H
#define RAMET_ORCHESTRATOR_DAEMON_SUPERVISOR_H

/* `warden` runs in a process of its own; what it returns is that process's exit status. `argv` is
 * the program's own, NULL-terminated, for an upgrade. Returns the exit status of rametd: that of a
 * warden that ended by itself. */
int supervise(int (*warden)(const void *arg), const void *arg, char *const argv[]);

#endif
