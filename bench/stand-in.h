// SPDX-License-Identifier: Apache-2.0
/* One process of stand-ins. */
#ifndef RAMET_BENCH_STAND_IN_H
#define RAMET_BENCH_STAND_IN_H

#include <sys/types.h>

/* Does what struct warden_msg on the socket `warden` says, until its other end is closed. `pid`:
 * the process that all VMs say they are. */
void stand_in_serve(const char *run_dir, int warden, pid_t pid);

#endif
