// SPDX-License-Identifier: Apache-2.0
/*
 * Control groups: init and agent have one, the user's processes another, and the root group is left
 * to the user's container engines.
 */
#ifndef RAMET_GUEST_CGROUP_H
#define RAMET_GUEST_CGROUP_H

#include <sys/types.h>

/* Called by init once cgroup2 is mounted. Creates the groups, enters init's, delegates every
 * controller, and limits the user's processes to nine tenths of what the kernel allows, so that the
 * agent can still fork. Logs what fails; a guest without control groups still works. */
void cgroup_set_up(void);
/* Like fork(2) in a program with one thread. The child, which will run the user's code, is in the
 * user's group, if that exists. */
pid_t cgroup_fork_user(void);

#endif
