// SPDX-License-Identifier: Apache-2.0
/*
 * Control groups: init and agent are in one of their own, all that the user starts in another, and
 * the root group is left to the user's container engines.
 */
#ifndef RAMET_GUEST_CGROUP_H
#define RAMET_GUEST_CGROUP_H

/* In init, once they are mounted: makes the groups, enters init's, hands every controller down, and
 * limits the user's processes to nine tenths of what the kernel allows, so that the agent can still
 * fork. Says what fails; a guest without them still works. */
void cgroup_set_up(void);
/* In a child of the agent that will run the user's code. Nothing where there is no such group. */
void cgroup_enter_user(void);

#endif
