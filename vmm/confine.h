// SPDX-License-Identifier: Apache-2.0
/*
 * Confines this process once it is a blank VM: no capabilities, no new privileges, and for each
 * kind of thread a list of the system calls that it is known to make. Any other call kills the
 * process, and the kernel logs which one it was.
 */
#ifndef RAMET_VMM_CONFINE_H
#define RAMET_VMM_CONFINE_H

#include "base/err.h"

struct confine;

/* Drops all capabilities and compiles the filters. Call it before any thread is started. */
int confine_new(struct confine **out, struct err *e);

/* Confine the calling thread from now on: a vCPU thread, or the loop's thread. */
int confine_vcpu(struct confine *c, struct err *e);
int confine_loop(struct confine *c, struct err *e);
/*
 * Confines the calling thread further, once the guest runs: the state of vCPUs and chips can still
 * be read but no longer set. Call it only on a thread confined by one of the two above: this filter
 * alone allows everything else.
 */
int confine_running(struct confine *c, struct err *e);

#endif
