// SPDX-License-Identifier: Apache-2.0
#include "base/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text-file.h"

static uint64_t ticks_to_ms(unsigned long ticks)
{
	return ticks * 1000ull / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* Reads the fields that proc_pid_stat(5) describes. */
bool proc_stat_read(const char *path, struct proc_stat *out)
{
	unsigned long majflt, utime, stime;
	char text[1024];

	if (text_file_read(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return false;
	/* The name in the second field may contain spaces and parentheses. */
	const char *begin = strchr(text, '('), *end = strrchr(text, ')');
	if (!begin || !end ||
	    sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %lu %*u %lu %lu", &out->state,
		   &majflt, &utime, &stime) != 4)
		return false;
	snprintf(out->name, sizeof(out->name), "%.*s", (int)(end - begin - 1), begin + 1);
	out->major_faults = majflt;
	out->user_ms = ticks_to_ms(utime);
	out->system_ms = ticks_to_ms(stime);
	return true;
}

void proc_memory_read(uint32_t pid, uint64_t *private_bytes, uint64_t *shared_bytes)
{
	unsigned long total, resident, shared;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	char path[64], text[128];

	snprintf(path, sizeof(path), "/proc/%u/statm", pid);
	text_file_read(AT_FDCWD, path, text, sizeof(text));
	if (sscanf(text, "%lu %lu %lu", &total, &resident, &shared) != 3 || shared > resident)
		return;
	*private_bytes = (resident - shared) * page;
	*shared_bytes = shared * page;
}
