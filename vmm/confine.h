// SPDX-License-Identifier: Apache-2.0
/*
 * What this process may still do once it is a shell: no capabilities, no new privileges, and per
 * thread a list of the system calls it is known to make. Any other one kills the process, and the
 * kernel logs which it was.
 */
#ifndef RAMET_VMM_CONFINE_H
#define RAMET_VMM_CONFINE_H

#include "base/err.h"

struct confine;

/* Gives all capabilities up and prepares both lists. Before any thread is started. */
int confine_new(struct confine **out, struct err *e);
void confine_free(struct confine *c);

/* For the calling thread, from now on: a vCPU thread; the loop's thread. */
int confine_vcpu(struct confine *c, struct err *e);
int confine_loop(struct confine *c, struct err *e);
/* The same once the guest runs: the state of vCPUs and chips can be read but not set any more. */
int confine_running_vcpu(struct confine *c, struct err *e);
int confine_running_loop(struct confine *c, struct err *e);

#endif
