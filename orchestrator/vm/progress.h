// SPDX-License-Identifier: Apache-2.0
/*
 * Distinguishes a slow VM from a stuck one. On an overcommitted host every step of a VM may take
 * many times as long as on an idle one, so no wall-clock limit fits both. A VM process that works
 * or waits for a busy CPU accumulates CPU time; a stuck one does not.
 */
#ifndef RAMET_ORCHESTRATOR_VM_PROGRESS_H
#define RAMET_ORCHESTRATOR_VM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Minimum that counts as work between two checks, in ms of CPU time. */
#define VM_WORKS       1   /* for a process without a guest, which is idle between requests */
#define VM_GUEST_WORKS 100 /* for others: an idle guest's timers take up to 5 ms/s if emulated */

/* Work of a VM process according to the host's /proc/PID/stat: ms of CPU time, and page reads. */
struct vmproc_progress {
	uint64_t first_ms, last_ms; /* at the first check, and at the last one */
	uint64_t began_ms;	    /* now_ns() in ms */
	bool measured;		    /* the first check was made */
};

/*
 * Begins a wait in which the process may make no progress for `period_ms`. Returns the ms until the
 * first check, at most 1 s. That check only records the work done so far; the caller then waits
 * `period_ms` before each further check.
 */
uint32_t vmproc_progress_begin(struct vmproc_progress *p, uint32_t period_ms);
/*
 * Checks whether the caller should keep waiting. Returns true for the first check. Later, returns
 * true when the process has worked at least `least_ms` (VM_WORKS or VM_GUEST_WORKS) since the last
 * check, is not in an endless loop, and the wait began less than an hour ago. A process that is
 * unknown (`pid` 0) or gone never works.
 */
bool vmproc_progressed(struct vmproc_progress *p, uint32_t pid, uint64_t least_ms);

#endif
