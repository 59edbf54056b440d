// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/daemon/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/num.h"
#include "base/text-file.h"
#include "base/log.h"
#include "orchestrator/daemon/roles.h"

#define PAUSE_FIRST_MS 100
#define PAUSE_MOST_MS  10000
#define LIVED_WELL_NS  60000000000ull
#define OOM_SCORE      "-900" /* the score of VM processes is positive (warden/jail-child.c) */

struct supervisor {
	int (*warden)(const void *arg, bool crashed);
	const void *arg;
	char *const *argv;
	char program[PATH_MAX]; /* path of the installed program; empty: unknown */
	sigset_t signals;
	pid_t pid; /* the warden's; 0: none runs */
	uint64_t started_ns;
	uint32_t pause_ms;
	bool stopping, stopped_again, killed;
	bool crashed; /* a signal other than SIGKILL ended the last warden */
	int status;   /* exit status, once `over` */
	bool over;
};

/* --- start ---------------------------------------------------------------------------------- */

/* Finds the path of the program. An upgrade replaces the file at this path. */
static void find_program(struct supervisor *s)
{
	ssize_t len = readlink("/proc/self/exe", s->program, sizeof(s->program) - 1);
	const char gone[] = " (deleted)";
	const size_t tail = sizeof(gone) - 1;

	s->program[len > 0 ? len : 0] = 0;
	if (len > (ssize_t)tail && !strcmp(s->program + len - tail, gone))
		s->program[len - (ssize_t)tail] = 0;
}

/* Makes the kernel kill the largest VM, rather than rametd, when the host is out of memory. */
static void spare_from_oom(void)
{
	int r = text_file_write(AT_FDCWD, "/proc/self/oom_score_adj", OOM_SCORE);

	if (r < 0)
		log_warn("set oom_score_adj: %s; when memory is short, the kernel may kill rametd",
			 strerror(-r));
}

static void start_warden(struct supervisor *s)
{
	pid_t self = getpid();

	s->started_ns = now_ns();
	s->pid = fork();
	if (s->pid < 0) {
		log_error("start the warden: %s", strerror(errno));
		s->pid = 0;
	}
	if (s->pid)
		return;
	/* The kernel kills the warden when the supervisor ends: a warden without one would prevent
	 * the next from starting. The blocked signals are inherited, so that none is lost before
	 * the warden waits for them. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != self)
		_exit(EXIT_FAILED);
	/* A Ctrl-C reaches the foreground group of the terminal: so the warden, in a group of its
	 * own, gets it once, from the supervisor. SIGTTOU would stop it when it logs there. */
	setpgid(0, 0);
	signal(SIGTTOU, SIG_IGN);
	_exit(s->warden(s->arg, s->crashed));
}

/* --- end of the warden ---------------------------------------------------------------------- */

static void on_warden_end(struct supervisor *s, int status)
{
	s->pid = 0;
	s->crashed = WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
	/* The warden was killed during a stop, so VMs may still run: another warden must end
	 * them. */
	if (WIFSIGNALED(status) && s->stopping && !s->stopped_again) {
		s->stopped_again = true;
		start_warden(s);
		if (s->pid)
			kill(s->pid, SIGTERM);
		return;
	}
	/* A warden that exits by itself ends rametd. But if a warden was killed and the next one
	 * fails to start, another one is started: remains of the killed one may still be in its
	 * way. */
	if (WIFEXITED(status) && (!WEXITSTATUS(status) || !s->killed || s->stopping)) {
		s->over = true;
		s->status = WEXITSTATUS(status);
		return;
	}
	if (s->stopping) {
		s->over = true;
		s->status = EXIT_FAILED;
		return;
	}
	if (now_ns() - s->started_ns > LIVED_WELL_NS)
		s->pause_ms = 0;
	s->pause_ms = backoff_next(s->pause_ms, PAUSE_FIRST_MS, PAUSE_MOST_MS);
	s->killed = true;
	log_error("the warden has ended (%s); restarting it in %u ms, VMs continue",
		  WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "it could not start",
		  s->pause_ms);
}

/* Reaps the warden, and VM processes that the supervisor inherited from a previous warden. */
static void reap(struct supervisor *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == s->pid)
			on_warden_end(s, status);
}

/* --- upgrade -------------------------------------------------------------------------------- */

static bool settings_are_right(struct supervisor *s)
{
	char *argv[64] = {s->argv[0], (char[]){"--check"}};
	size_t n = 2;
	int status;

	for (size_t i = 1; s->argv[i] && n < ARRAY_LEN(argv) - 1; i++)
		argv[n++] = s->argv[i];
	pid_t pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_UNBLOCK, &s->signals, NULL);
		execv(s->program, argv);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void end_warden(struct supervisor *s)
{
	if (!s->pid)
		return;
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

/* Kills the warden, which ends the service, and executes the installed program. A kill is safe,
 * because both must survive one at any moment anyway. */
static void upgrade(struct supervisor *s)
{
	if (s->stopping)
		return;
	if (!s->program[0] || !settings_are_right(s)) {
		log_error("upgrade refused: %s%s; nothing was changed", s->program,
			  s->program[0] ? " --check failed with these settings"
					: "the path of the program is unknown");
		return;
	}
	log_info("upgrade: %s takes over, VMs continue", s->program);
	s->killed = true;
	end_warden(s);
	execv(s->program, s->argv);
	log_error("execute %s: %s; the present version continues", s->program, strerror(errno));
	start_warden(s);
}

/* --- the loop ------------------------------------------------------------------------------- */

/* Passes the signal on to the warden. */
static void stop(struct supervisor *s, int number)
{
	s->stopping = true;
	if (!s->pid)
		start_warden(s); /* the new warden ends the VMs */
	if (s->pid)
		kill(s->pid, number);
}

static void wait_for_signal(struct supervisor *s)
{
	const struct timespec pause = {s->pause_ms / 1000, (long)(s->pause_ms % 1000) * 1000000};
	int number =
		s->pid ? sigwaitinfo(&s->signals, NULL) : sigtimedwait(&s->signals, NULL, &pause);

	if (number == SIGCHLD)
		reap(s);
	else if (number == SIGHUP)
		upgrade(s);
	else if (number == SIGTERM || number == SIGINT)
		stop(s, number);
	else if (number < 0 && errno == EAGAIN)
		start_warden(s);
}

int supervise(int (*warden)(const void *arg, bool crashed), const void *arg, char *const argv[])
{
	struct supervisor s = {.warden = warden, .arg = arg, .argv = argv};

	log_init("supervisor", LOG_INFO);
	find_program(&s);
	spare_from_oom();
	sigemptyset(&s.signals);
	sigaddset(&s.signals, SIGTERM);
	sigaddset(&s.signals, SIGINT);
	sigaddset(&s.signals, SIGHUP);
	sigaddset(&s.signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &s.signals, NULL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	start_warden(&s);
	if (!s.pid)
		return EXIT_FAILED;
	while (!s.over)
		wait_for_signal(&s);
	return s.status;
}
