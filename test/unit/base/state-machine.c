// SPDX-License-Identifier: Apache-2.0
/* State machines: legal steps follow the table, illegal ones are refused or end a debug build. */
#include "base/state-machine.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { IDLE, BUSY, OVER, N_STATES };
enum { START, DONE, END, N_EVENTS };

static const uint8_t next[N_STATES][N_EVENTS] = {
	[IDLE] = {[START] = STATE_TO(BUSY), [END] = STATE_TO(OVER)},
	[BUSY] = {[DONE] = STATE_TO(IDLE), [START] = STATE_TO(BUSY)},
};
static const struct state_machine machine = STATE_MACHINE("job", next);

static void test_legal_steps_follow_the_table(void **state)
{
	assert_int_equal(machine.n_states, N_STATES);
	assert_int_equal(machine.n_events, N_EVENTS);
	assert_int_equal(state_after(&machine, IDLE, START), BUSY);
	assert_int_equal(state_after(&machine, BUSY, START), BUSY);
	assert_int_equal(state_after(&machine, BUSY, DONE), IDLE);
	assert_int_equal(state_after(&machine, IDLE, END), OVER);
}

static void test_try_reports_an_illegal_step_and_changes_nothing(void **state)
{
	unsigned idle = IDLE, over = OVER;

	assert_false(state_try(&machine, &idle, DONE));
	assert_false(state_try(&machine, &over, START));
	assert_int_equal(idle, IDLE);
	assert_int_equal(over, OVER);
	assert_true(state_try(&machine, &idle, START));
	assert_int_equal(idle, BUSY);
}

static void test_illegal_step_aborts_only_debug_builds(void **state)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		signal(SIGABRT, SIG_DFL); /* the test library catches it */
		_exit(state_after(&machine, IDLE, DONE) == IDLE ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
#ifdef NDEBUG
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#else
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_legal_steps_follow_the_table),
		cmocka_unit_test(test_try_reports_an_illegal_step_and_changes_nothing),
		cmocka_unit_test(test_illegal_step_aborts_only_debug_builds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
