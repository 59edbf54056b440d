// SPDX-License-Identifier: Apache-2.0
/* The kernel's counter of processes that were killed because memory ran out. */
#ifndef RAMET_GUEST_OOM_H
#define RAMET_GUEST_OOM_H

#include <stdint.h>

/* Opens the counter: a file with a line "oom_kill N". NULL: that of the user's control group, or of
 * the whole guest. */
void oom_open(const char *path);
/* Returns the count; 0 if it is unknown. */
uint64_t oom_kills(void);

#endif
