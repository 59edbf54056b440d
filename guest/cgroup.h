// SPDX-License-Identifier: Apache-2.0
/*
 * Control groups: one for init and the agent, one for the user's processes. The root group is left
 * to the user's container engines.
 */
#ifndef RAMET_GUEST_CGROUP_H
#define RAMET_GUEST_CGROUP_H

#include <sys/types.h>

/* Called by init once cgroup2 is mounted. Creates the groups, moves init into its own, delegates
 * every controller, and limits the user's processes to nine tenths of what the kernel allows, so
 * that the agent can still fork. Logs what fails; a guest without control groups still works. */
void cgroup_set_up(void);
/* Like fork(2), but only for programs with one thread. The child is to run the user's code, and is
 * in the control group for the user's processes if that group exists. */
pid_t cgroup_fork_user(void);

#endif
