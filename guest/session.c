// SPDX-License-Identifier: Apache-2.0
#include "guest/session.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"

#define PIDS_MAX (4u << 20) /* the kernel's PID_MAX_LIMIT */

/* True when there was one that is not in `killed` yet. */
static bool kill_those_there(pid_t session, uint8_t *killed)
{
	bool found = false;
	DIR *proc = opendir("/proc");

	if (!proc)
		return false;
	for (struct dirent *d; (d = readdir(proc));) {
		unsigned long pid = strtoul(d->d_name, NULL, 10);

		if (!pid || pid >= PIDS_MAX || getsid((pid_t)pid) != session)
			continue;
		if (killed[pid / 8] >> (pid % 8) & 1)
			continue;
		found = true;
		kill((pid_t)pid, SIGKILL);
		killed[pid / 8] |= (uint8_t)(1u << pid % 8);
	}
	closedir(proc);
	return found;
}

void session_kill(pid_t session)
{
	/* Mostly untouched pages. */
	scoped_free uint8_t *killed = calloc(PIDS_MAX / 8, 1);

	/* The group of its leader all at once: most are in there, and a fork bomb has no more time
	 * to go on. */
	kill(-session, SIGKILL);
	/* A child that came while its parent was looked for is found the next time; who has a
	 * SIGKILL pending makes no more of them. */
	while (killed && kill_those_there(session, killed))
		;
}
