// SPDX-License-Identifier: Apache-2.0
/* What the agent does with a temporary file that a killed worker has left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "../../../guest/files/worker.c"

static char left[] = "/tmp/ramet-worker-XXXXXX";

static struct staged_file leave_file(enum staged_state state)
{
	struct staged_file f = {.state = state};
	int fd;

	strcpy(left, "/tmp/ramet-worker-XXXXXX");
	fd = mkstemp(left);
	assert_true(fd >= 0);
	close(fd);
	strcpy(f.temporary, left);
	return f;
}

static void occupy(pid_t pid)
{
	for (size_t i = 0; i < WORKER_COUNT_MAX; i++)
		workers[i].pid = pid;
}

static void test_another_worker_removes_the_file(void **state)
{
	struct staged_file f = leave_file(STAGED_OPEN);
	int status;

	remove_left(&f);
	assert_int_equal(waitpid(workers[0].pid, &status, 0), workers[0].pid);
	assert_int_equal(status, 0);
	assert_int_equal(access(left, F_OK), -1);
	assert_int_equal(f.state, STAGED_NEW);
}

static void test_agent_removes_the_file_if_no_worker_can(void **state)
{
	struct staged_file f = leave_file(STAGED_OPEN);

	occupy(1);
	remove_left(&f);
	occupy(0);
	assert_int_equal(access(left, F_OK), -1);
}

static void test_nothing_is_removed_if_nothing_was_left(void **state)
{
	struct staged_file f = leave_file(STAGED_OVER);

	occupy(1);
	remove_left(&f);
	occupy(0);
	assert_int_equal(unlink(left), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_another_worker_removes_the_file),
		cmocka_unit_test(test_agent_removes_the_file_if_no_worker_can),
		cmocka_unit_test(test_nothing_is_removed_if_nothing_was_left),
	};

	loop_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
