// SPDX-License-Identifier: Apache-2.0
/* Sessions of processes: each terminal's program leads one, and so does the bash of each call. */
#ifndef RAMET_GUEST_SESSION_H
#define RAMET_GUEST_SESSION_H

#include <sys/types.h>

/* Sends SIGKILL to every process of the session, until each of them got it. */
void session_kill(pid_t session);

#endif
