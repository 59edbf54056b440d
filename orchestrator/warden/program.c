// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/program.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/warden/view.h"

#define ABOVE_ALL_FDS 64 /* above every final descriptor number */

/* --- in the clone --------------------------------------------------------------------------- */

/* Sets the limit of open files to `wanted`, or else to the hard limit. */
static void limit_files(rlim_t wanted)
{
	struct rlimit most = {wanted, wanted};

	if (setrlimit(RLIMIT_NOFILE, &most) == 0)
		return;
	if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
		most.rlim_cur = most.rlim_max;
		setrlimit(RLIMIT_NOFILE, &most);
	}
}

static int place_fd(int from, int to, int flags, struct err *e)
{
	return dup3(from, to, flags) < 0 ? err_set(e, errno, "move a descriptor to its number") : 0;
}

/* Moves the descriptors to their final numbers, and the executable to the number after them, where
 * it stays open until the exec. Returns that number, or -errno. */
static int place_fds(const struct program *p, struct err *e)
{
	int high[ABOVE_ALL_FDS], last = PROGRAM_FIRST_FD + (int)p->n_fds;
	int exe = fcntl(p->exe, F_DUPFD_CLOEXEC, ABOVE_ALL_FDS), r = 0;

	for (size_t i = 0; i < p->n_fds; i++)
		high[i] = fcntl(p->fds[i], F_DUPFD_CLOEXEC, ABOVE_ALL_FDS);
	for (size_t i = 0; r == 0 && i < p->n_fds; i++)
		r = place_fd(high[i], PROGRAM_FIRST_FD + (int)i, 0, e);
	if (r == 0)
		r = place_fd(exe, last, O_CLOEXEC, e);
	if (r == 0 && syscall(SYS_close_range, last + 1, ~0u, 0) < 0)
		r = err_set(e, errno, "close all other descriptors");
	return r < 0 ? r : last;
}

/* Removes settings from the environment, which may contain secrets. Programs get their settings
 * through a descriptor. */
static void drop_settings(char **variables)
{
	char **kept = variables;

	for (char **each = variables; *each; each++)
		if (strncmp(*each, "RAMET_", 6) != 0)
			*kept++ = *each;
	*kept = NULL;
}

/* Executes the program in the clone. Logs errors, since nobody waits for an answer. */
static _Noreturn void become(const struct program *p)
{
	struct err e = {0};
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(077);
	drop_settings(environ);
	int exe = place_fds(p, &e);
	limit_files(p->files);
	int r = exe < 0 || !p->kept ? exe : view_hide_run(p->kept, p->n_kept, &e);
	if (r >= 0 && account_become(p->account.uid, p->account.gid, &e) == 0) {
		syscall(SYS_execveat, exe, "", p->argv, environ, AT_EMPTY_PATH);
		err_set(&e, errno, "execute the program");
	}
	log_error("cannot start %s: %s", p->name, e.text);
	_exit(p->setup_exit);
}

/* --- in the warden -------------------------------------------------------------------------- */

int program_start(const struct cgroup_tree *tree, const struct program *p, struct err *e)
{
	scoped_fd int cgroup = cgroup_make(tree, p->name, &p->limits, e);
	int pidfd = -1;

	if (cgroup < 0)
		return cgroup;
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP | CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
		.pidfd = (uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)cgroup,
	};
	long pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		become(p);
	return pid < 0 ? err_set(e, errno, "clone %s", p->name) : pidfd;
}

bool program_ended(int *pidfd, siginfo_t *info)
{
	*info = (siginfo_t){0};
	if (*pidfd < 0 || waitid(P_PIDFD, (id_t)*pidfd, info, WEXITED | WNOHANG) < 0 ||
	    info->si_pid == 0)
		return false;
	close_fd(pidfd);
	return true;
}
