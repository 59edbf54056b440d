// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/vm/progress.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* No step of a restore takes a tenth of this, even in an emulated host: a guest that uses more is
 * in an endless loop. */
#define ENDLESS_MS 300000
/* A page that is read from a disk costs little CPU time, however slow the disk is. */
#define PAGE_READ_MS 5

/* Returns CPU time in ms and major faults, weighted, of all threads; 0 when there is no such
 * process. Fields by number as in proc_pid_stat(5). */
static uint64_t work_done_ms(uint32_t pid)
{
	char path[64], text[1024];
	unsigned long majflt, utime, stime;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (len <= 0)
		return 0;
	text[len] = 0;
	/* The name in the second field may hold blanks and brackets. */
	const char *rest = strrchr(text, ')');
	if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %lu %*u %lu %lu",
			    &majflt, &utime, &stime) != 3)
		return 0;
	return (utime + stime) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK) + majflt * PAGE_READ_MS;
}

void vm_progress_begin(struct vm_progress *p, uint32_t pid)
{
	p->first_ms = p->last_ms = work_done_ms(pid);
}

bool vm_progressed(struct vm_progress *p, uint32_t pid, uint64_t least_ms)
{
	uint64_t done = work_done_ms(pid), before = p->last_ms;

	p->last_ms = done;
	return done >= before + least_ms && done < p->first_ms + ENDLESS_MS;
}
