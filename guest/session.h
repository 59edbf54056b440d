// SPDX-License-Identifier: Apache-2.0
/* Sessions: each program that the agent starts leads one, and so does the bash of each call. */
#ifndef RAMET_GUEST_SESSION_H
#define RAMET_GUEST_SESSION_H

#include <sys/types.h>

/* Sends SIGKILL to every process of the session, until each of them got it. */
void session_kill(pid_t session);
/* Does the same, but not to the leader of the session. */
void session_kill_but_leader(pid_t session);
/* Sends a signal once to every process that is in the session now. */
void session_signal(pid_t session, int number);

#endif
