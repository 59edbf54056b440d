// SPDX-License-Identifier: Apache-2.0
/* One process that runs stand-in VMs. */
#ifndef RAMET_BENCH_STAND_IN_H
#define RAMET_BENCH_STAND_IN_H

#include <sys/types.h>

/* Executes requests (struct warden_msg) from the socket `warden` until its peer closes it. All VMs
 * report `pid` as their process. */
void stand_in_serve(const char *run_dir, int warden, pid_t pid);

#endif
