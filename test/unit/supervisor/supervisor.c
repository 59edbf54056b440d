// SPDX-License-Identifier: Apache-2.0
/* The first process: starts the warden again when it is killed, passes on what it says, and becomes
 * another program. Each test runs one in a process of its own, whose wardens tell their pids. */
#include <setjmp.h>
#include <stdarg.h>
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

#define TELL_FD 9

struct told {
	pid_t pid, parent;
};

/* Ends with 7 at SIGTERM, as a warden ends in order. */
static int warden(const void *arg)
{
	const struct told told = {getpid(), getppid()};
	sigset_t set;
	int number;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (write(TELL_FD, &told, sizeof(told)) != (ssize_t)sizeof(told))
		return 1;
	return sigwait(&set, &number) == 0 && number == SIGTERM ? 7 : 3;
}

static char *args[] = {(char[]){"test"}, (char[]){"--run"}, NULL};

struct run {
	pid_t pid;
	int told;
};

static struct run start(void)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(ends[1], TELL_FD);
		_exit(supervise(warden, NULL, args));
	}
	close(ends[1]);
	return (struct run){pid, ends[0]};
}

static struct told next(struct run *r)
{
	struct told told = {0, 0};

	assert_int_equal(read(r->told, &told, sizeof(told)), sizeof(told));
	assert_int_equal(told.parent, r->pid);
	return told;
}

static int end_of(struct run *r)
{
	int status = 0;
	char byte;

	assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
	assert_int_equal(read(r->told, &byte, 1), 0); /* no warden is left either */
	close(r->told);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_a_warden_that_ends_is_the_end(void **state)
{
	struct run r = start();

	kill(next(&r).pid, SIGUSR1);
	assert_int_equal(end_of(&r), 3);
}

static void test_a_stop_is_passed_on(void **state)
{
	struct run r = start();

	next(&r);
	kill(r.pid, SIGTERM);
	assert_int_equal(end_of(&r), 7);
}

static void test_a_warden_that_is_killed_comes_back(void **state)
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

static void test_a_stop_while_none_runs_is_in_order_too(void **state)
{
	struct run r = start();

	kill(next(&r).pid, SIGKILL);
	kill(r.pid, SIGTERM);
	next(&r);
	assert_int_equal(end_of(&r), 7);
}

static void test_a_warden_does_not_outlive_it(void **state)
{
	struct run r = start();

	next(&r);
	kill(r.pid, SIGKILL);
	assert_int_equal(end_of(&r), -SIGKILL);
}

/* This very program, which says that the settings are right: main. */
static void test_an_upgrade_keeps_the_process(void **state)
{
	struct run r = start();
	pid_t first = next(&r).pid;

	kill(r.pid, SIGHUP);
	pid_t second = next(&r).pid;
	assert_int_not_equal(first, second);
	kill(r.pid, SIGTERM);
	assert_int_equal(end_of(&r), 7);
}

static void test_settings_that_are_wrong_stop_an_upgrade(void **state)
{
	char wrong[] = "--wrong", *right = args[1];

	args[1] = wrong;
	struct run r = start();
	pid_t first = next(&r).pid;
	args[1] = right;
	kill(r.pid, SIGHUP);
	kill(r.pid, SIGTERM);
	assert_int_equal(end_of(&r), 7); /* of the first: no second one told its pid */
	assert_int_equal(kill(first, 0), -1);
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_warden_that_ends_is_the_end),
		cmocka_unit_test(test_a_stop_is_passed_on),
		cmocka_unit_test(test_a_warden_that_is_killed_comes_back),
		cmocka_unit_test(test_a_stop_while_none_runs_is_in_order_too),
		cmocka_unit_test(test_a_warden_does_not_outlive_it),
		cmocka_unit_test(test_an_upgrade_keeps_the_process),
		cmocka_unit_test(test_settings_that_are_wrong_stop_an_upgrade),
	};

	if (argc > 2 && !strcmp(argv[1], "--check"))
		return strcmp(argv[2], "--run") != 0;
	if (argc > 1 && !strcmp(argv[1], "--run"))
		return supervise(warden, NULL, args);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
