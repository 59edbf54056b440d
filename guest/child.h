// SPDX-License-Identifier: Apache-2.0
/* The first steps of a process that the agent forked. */
#ifndef RAMET_GUEST_CHILD_H
#define RAMET_GUEST_CHILD_H

#include <sys/types.h>

/* Makes the process die with the agent (`parent`), unblocks signals, sets its oom_score_adj and
 * lets it run on all CPUs. */
void child_begin(pid_t parent, const char *oom_score);

#endif
