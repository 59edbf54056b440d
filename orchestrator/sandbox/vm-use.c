// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/sandbox/vm-use.h"

#include <time.h>

#include "base/clock.h"
#include "base/proc.h"

/* Reads the process's CPU clock: one system call, where /proc/PID/stat needs three and counts in
 * hundredths of a second. */
uint64_t vm_cpu_ns(uint32_t pid)
{
	struct timespec used;
	clockid_t clock;

	if (!pid || clock_getcpuclockid((pid_t)pid, &clock) || clock_gettime(clock, &used) < 0)
		return 0;
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

bool vm_use_read(uint32_t pid, struct vm_use *use)
{
	uint64_t before_ns = use->cpu_ns;

	use->cpu_ns = vm_cpu_ns(pid);
	use->at_ms = now_ns() / 1000000;
	/* A process that has not run since has touched no further memory. Looking up its /proc
	 * files takes 20 times as long as reading its clock. */
	if (use->cpu_ns != before_ns)
		proc_memory_read(pid, &use->memory.private_bytes, &use->memory.shared_bytes);
	return use->cpu_ns;
}
