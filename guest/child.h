// SPDX-License-Identifier: Apache-2.0
/* What a process that the agent forks does first. */
#ifndef RAMET_GUEST_CHILD_H
#define RAMET_GUEST_CHILD_H

#include <sys/types.h>

/* It must not outlive the agent, `parent`, nor keep its signals and its rank when memory is out
 * (`oom_score` as in /proc). */
void child_begin(pid_t parent, const char *oom_score);

#endif
