// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/vm/progress.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/num.h"
#include "base/proc.h"

/* CPU time after which a guest counts as being in an endless loop. Even on an emulated host, no
 * step of a restore takes a tenth of it. */
#define ENDLESS_MS 300000
/* The longest that a step may take: enough on a host that gives it a hundredth of the CPU it needs.
 * Without it, a guest that does a little work between checks could extend the wait for days. */
#define ALIVE_MS 3600000
/* Reading a page from a disk costs little CPU time, however slow the disk is. */
#define PAGE_READ_MS 5
/* Most waits end sooner, and so never read the stat file, which takes 20 us. */
#define FIRST_CHECK_MS 1000

/* Returns the CPU time in ms plus the weighted major faults of all threads; 0 when there is no such
 * process. */
static uint64_t work_done_ms(uint32_t pid)
{
	struct proc_stat stat;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	if (!proc_stat_read(path, &stat))
		return 0;
	return stat.user_ms + stat.system_ms + stat.major_faults * PAGE_READ_MS;
}

uint32_t vmproc_progress_begin(struct vmproc_progress *p, uint32_t period_ms)
{
	*p = (struct vmproc_progress){.began_ms = now_ns() / 1000000};
	return min_u32(period_ms, FIRST_CHECK_MS);
}

bool vmproc_progressed(struct vmproc_progress *p, uint32_t pid, uint64_t least_ms)
{
	uint64_t done = work_done_ms(pid), before = p->last_ms;

	p->last_ms = done;
	if (!p->first_ms) /* the first check, or those before could not read the file */
		p->first_ms = done;
	if (!p->measured) {
		p->measured = true;
		return true;
	}
	return done >= before + least_ms && done < p->first_ms + ENDLESS_MS &&
	       now_ns() / 1000000 < p->began_ms + ALIVE_MS;
}
