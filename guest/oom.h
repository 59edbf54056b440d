// SPDX-License-Identifier: Apache-2.0
/* The kernel's counter of processes that were killed because memory ran out. */
#ifndef RAMET_GUEST_OOM_H
#define RAMET_GUEST_OOM_H

#include <stdint.h>

/* Opens the counter: a file with a line "oom_kill N". `path` NULL: the counter of the control group
 * of the user's processes, or if there is none, the whole guest's. */
void oom_open(const char *path);
/* Returns the count; 0 if it is unknown. */
uint64_t oom_kills(void);

#endif
