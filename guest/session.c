// SPDX-License-Identifier: Apache-2.0
#include "guest/session.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/fd.h"

#define PIDS_MAX (4u << 20) /* the kernel's PID_MAX_LIMIT */

/* Sends a signal to each process of the session that is not in `done` yet, and adds it there.
 * Returns true if there was one. `done` has a bit for each pid. */
static bool signal_found(pid_t session, int number, uint8_t *done)
{
	bool found = false;
	DIR *proc = opendir("/proc");

	if (!proc)
		return false;
	for (struct dirent *d; (d = readdir(proc));) {
		unsigned long pid = strtoul(d->d_name, NULL, 10);

		if (!pid || pid >= PIDS_MAX || getsid((pid_t)pid) != session)
			continue;
		if (bit_get(done, pid))
			continue;
		found = true;
		kill((pid_t)pid, number);
		bit_set(done, pid, true);
	}
	closedir(proc);
	return found;
}

static void kill_all(pid_t session, bool leader_too)
{
	/* A bit for each pid. The kernel provides its pages when they are touched: few are. */
	scoped_free uint8_t *killed = calloc(PIDS_MAX / 8, 1);

	/* First the leader's group, all at once: most processes are in it, and a fork bomb gets no
	 * time to continue. */
	if (leader_too)
		kill(-session, SIGKILL);
	else if (killed)
		bit_set(killed, (uint64_t)session, true);
	/* A child that was forked during the search is found by the next one; a process with a
	 * pending SIGKILL forks no more. */
	while (killed && signal_found(session, SIGKILL, killed))
		;
}

void session_kill(pid_t session)
{
	kill_all(session, true);
}

void session_kill_but_leader(pid_t session)
{
	kill_all(session, false);
}

void session_signal(pid_t session, int number)
{
	scoped_free uint8_t *done = calloc(PIDS_MAX / 8, 1);

	if (done)
		signal_found(session, number, done);
}
