// SPDX-License-Identifier: Apache-2.0
#include "guest/child.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/text-file.h"

static void set_oom_score(const char *score)
{
	/* In tests outside of a guest, the agent may not change its score. Then a child has
	 * inherited the normal one, and needs no change. */
	text_file_write(AT_FDCWD, "/proc/self/oom_score_adj", score);
}

/* The child inherits the affinity of the agent, which is pinned to one CPU. */
static void use_all_cpus(void)
{
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all);
}

void child_begin(pid_t parent, const char *oom_score)
{
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(126);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	set_oom_score(oom_score);
	use_all_cpus();
}
