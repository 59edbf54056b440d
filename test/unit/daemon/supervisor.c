// SPDX-License-Identifier: Apache-2.0
/* The supervisor restarts the warden when it is killed, passes on its exit status, and executes
 * another program for an upgrade. Each test runs a supervisor in a child process; its wardens
 * report their pids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/daemon/supervisor.h"

#define REPORT_FD 9

struct report {
	pid_t pid, parent;
	bool crashed;
};

/* Exits with 7 at SIGTERM or SIGINT, as a warden does in an orderly stop, and with 3 at SIGUSR1. */
static int warden(const void *arg, bool crashed)
{
	const struct report report = {getpid(), getppid(), crashed};
	sigset_t set;
	int number;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (write(REPORT_FD, &report, sizeof(report)) != (ssize_t)sizeof(report))
		return 1;
	return sigwait(&set, &number) == 0 && number != SIGUSR1 ? 7 : 3;
}

static char *args[] = {(char[]){"test"}, (char[]){"--run"}, NULL};

struct run {
	pid_t pid;
	int reports; /* receives a struct report from each warden */
};

/* `terminal`: the controlling terminal of the supervisor; NULL: that of this program, if any. */
static struct run start_on(const char *terminal)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (terminal && (setsid() < 0 || open(terminal, O_RDWR) < 0))
			_exit(1);
		dup2(ends[1], REPORT_FD);
		_exit(supervise(warden, NULL, args));
	}
	close(ends[1]);
	return (struct run){pid, ends[0]};
}

static struct run start(void)
{
	return start_on(NULL);
}

static struct report next(struct run *r)
{
	struct report report = {0};

	assert_int_equal(read(r->reports, &report, sizeof(report)), sizeof(report));
	assert_int_equal(report.parent, r->pid);
	return report;
}

static int end_of(struct run *r)
{
	int status = 0;
	char byte;

	assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
	assert_int_equal(read(r->reports, &byte, 1), 0); /* no warden is left */
	close(r->reports);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Like end_of, after any number of further wardens. */
static int end_with_reports(struct run *r)
{
	struct report report;
	int status = 0;

	while (read(r->reports, &report, sizeof(report)) > 0)
		;
	close(r->reports);
	assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void supervisor_ends_with_the_warden(void **state)
{
	struct run r = start();

	kill(next(&r).pid, SIGUSR1);
	assert_int_equal(end_of(&r), 3);
}

static void stop_is_passed_on(void **state)
{
	struct run r = start();

	next(&r);
	kill(r.pid, SIGTERM);
	assert_int_equal(end_of(&r), 7);
}

static void killed_warden_is_restarted(void **state)
{
	struct run r = start();
	pid_t first = next(&r).pid;

	kill(first, SIGKILL);
	pid_t second = next(&r).pid;
	assert_int_not_equal(first, second);
	kill(second, SIGKILL);
	next(&r);
	kill(r.pid, SIGTERM);
	assert_int_equal(end_of(&r), 7);
}

static void warden_learns_that_the_previous_one_crashed(void **state)
{
	struct run r = start();
	struct report first = next(&r);

	assert_false(first.crashed);
	kill(first.pid, SIGABRT);
	struct report second = next(&r);
	assert_true(second.crashed);
	kill(second.pid, SIGKILL);
	assert_false(next(&r).crashed);
	kill(r.pid, SIGTERM);
	assert_int_equal(end_of(&r), 7);
}

static void stop_without_a_warden_is_orderly(void **state)
{
	struct run r = start();

	kill(next(&r).pid, SIGKILL);
	kill(r.pid, SIGTERM);
	next(&r);
	assert_int_equal(end_of(&r), 7);
}

/* A Ctrl-C on the terminal, also right after the warden was killed, when a new one is or is not
 * there yet. */
static void ctrl_c_stops_orderly(void **state)
{
	for (int i = 0; i < 20; i++) {
		scoped_fd int terminal = posix_openpt(O_RDWR | O_NOCTTY);

		assert_true(grantpt(terminal) == 0 && unlockpt(terminal) == 0);
		struct run r = start_on(ptsname(terminal));
		pid_t first = next(&r).pid;
		if (i)
			kill(first, SIGKILL);
		usleep(i * 10000);
		assert_int_equal(write(terminal, "\x03", 1), 1);
		assert_int_equal(end_with_reports(&r), 7);
	}
}

static void warden_ends_with_the_supervisor(void **state)
{
	struct run r = start();

	next(&r);
	kill(r.pid, SIGKILL);
	assert_int_equal(end_of(&r), -SIGKILL);
}

/* The upgrade executes this test program, whose main accepts the settings. */
static void upgrade_keeps_the_process(void **state)
{
	struct run r = start();
	pid_t first = next(&r).pid;

	kill(r.pid, SIGHUP);
	pid_t second = next(&r).pid;
	assert_int_not_equal(first, second);
	kill(r.pid, SIGTERM);
	assert_int_equal(end_of(&r), 7);
}

static void wrong_settings_prevent_an_upgrade(void **state)
{
	char wrong[] = "--wrong", *right = args[1];

	args[1] = wrong;
	struct run r = start();
	pid_t first = next(&r).pid;
	args[1] = right;
	kill(r.pid, SIGHUP);
	kill(r.pid, SIGTERM);
	assert_int_equal(end_of(&r), 7); /* the first warden's status: there was no second */
	assert_int_equal(kill(first, 0), -1);
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(supervisor_ends_with_the_warden),
		cmocka_unit_test(stop_is_passed_on),
		cmocka_unit_test(killed_warden_is_restarted),
		cmocka_unit_test(warden_learns_that_the_previous_one_crashed),
		cmocka_unit_test(stop_without_a_warden_is_orderly),
		cmocka_unit_test(ctrl_c_stops_orderly),
		cmocka_unit_test(warden_ends_with_the_supervisor),
		cmocka_unit_test(upgrade_keeps_the_process),
		cmocka_unit_test(wrong_settings_prevent_an_upgrade),
	};

	if (argc > 2 && !strcmp(argv[1], "--check"))
		return strcmp(argv[2], "--run") != 0;
	if (argc > 1 && !strcmp(argv[1], "--run"))
		return supervise(warden, NULL, args);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
