// SPDX-License-Identifier: Apache-2.0
/* Signals to the processes of a session (setsid(2)). Each program that the agent starts leads a
 * session, and so does the bash of each call. */
#ifndef RAMET_GUEST_SESSION_H
#define RAMET_GUEST_SESSION_H

#include <sys/types.h>

/* Sends SIGKILL to every process of the session, also to those that are forked meanwhile. */
void session_kill(pid_t session);
/* Like session_kill, but spares the leader of the session. */
void session_kill_but_leader(pid_t session);
/* Sends a signal once to every process that is in the session now. */
void session_signal(pid_t session, int number);

#endif
