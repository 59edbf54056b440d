// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_INIT_INIT_H
#define RAMET_GUEST_INIT_INIT_H

/* Runs PID 1: mounts, starts and restarts the agent, reaps orphans; SIGTERM powers off. Never
 * returns. */
int init_main(void);

#endif
