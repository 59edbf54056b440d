// SPDX-License-Identifier: Apache-2.0
/*
 * Tells a slow VM from one that stands still. On an overcommitted host every step of a VM may take
 * many times as long as on an idle one, so no limit on wall-clock time is right for both. A VM
 * process that works or waits for a busy CPU accumulates CPU time; one that is stuck does not.
 */
#ifndef RAMET_ORCHESTRATOR_VM_PROGRESS_H
#define RAMET_ORCHESTRATOR_VM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* The least that counts as work between two looks, in ms of CPU time. */
#define VM_WORKS       1   /* a process without a guest, which does nothing unasked */
#define VM_GUEST_WORKS 100 /* idle guests have timers: up to 5 ms a second in an emulated host */

/* The work that a VM process has done, by the host's /proc/PID/stat: ms of CPU time, page reads. */
struct vmproc_progress {
	uint64_t first_ms, last_ms; /* at the begin, and at the last look */
	uint64_t began_ms;	    /* on the loop's clock */
};

/* Takes the marks that vmproc_progressed compares with. `pid` 0: not known, which never progresses.
 */
void vmproc_progress_begin(struct vmproc_progress *p, uint32_t pid);
/* Returns true when the process has worked since the last look, and neither without end nor for
 * more than an hour since the begin: the caller waits on. */
bool vmproc_progressed(struct vmproc_progress *p, uint32_t pid, uint64_t least_ms);

#endif
