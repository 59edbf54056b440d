// SPDX-License-Identifier: Apache-2.0
/* A child process that computes endlessly takes the place of a VM process; one test stops it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "orchestrator/vm/progress.h"

static int setup(void **state)
{
	static pid_t child;

	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (volatile unsigned n = 0;; n++)
			;
	}
	*state = &child;
	return child < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	pid_t *child = *state;

	kill(*child, SIGKILL);
	return waitpid(*child, NULL, 0) == *child ? 0 : -1;
}

/* Begins a wait, and makes its first check. */
static void begin(struct vmproc_progress *p, uint32_t pid)
{
	vmproc_progress_begin(p, 60000);
	assert_true(vmproc_progressed(p, pid, VM_WORKS));
}

static void first_check_is_soon_and_only_measures(void **state)
{
	pid_t *child = *state;
	struct vmproc_progress p;

	assert_in_range(vmproc_progress_begin(&p, 60000), 1, 5000);
	assert_int_equal(vmproc_progress_begin(&p, 20), 20);
	p.last_ms = UINT64_MAX;
	assert_true(vmproc_progressed(&p, (uint32_t)*child, VM_GUEST_WORKS));
	assert_true(p.last_ms < UINT64_MAX && p.first_ms == p.last_ms);
}

static void working_process_progresses(void **state)
{
	pid_t *child = *state;
	struct vmproc_progress p;

	for (int i = 0; i < 3; i++) {
		begin(&p, (uint32_t)*child);
		/* Loops until the machine gives it a CPU, however long that takes. */
		while (!vmproc_progressed(&p, (uint32_t)*child, VM_WORKS))
			usleep(10000);
	}
}

static void stopped_process_does_not_progress(void **state)
{
	pid_t *child = *state;
	struct vmproc_progress p;
	int status;

	kill(*child, SIGSTOP);
	assert_int_equal(waitpid(*child, &status, WUNTRACED), *child);
	assert_true(WIFSTOPPED(status));
	begin(&p, (uint32_t)*child);
	usleep(50000);
	assert_false(vmproc_progressed(&p, (uint32_t)*child, VM_WORKS));
	kill(*child, SIGCONT);
	while (!vmproc_progressed(&p, (uint32_t)*child, VM_WORKS))
		usleep(10000);
}

static void endless_work_is_not_progress(void **state)
{
	pid_t *child = *state;
	struct vmproc_progress p;

	begin(&p, (uint32_t)*child);
	while (!vmproc_progressed(&p, (uint32_t)*child, VM_WORKS))
		usleep(10000);
	p.first_ms -= 300000; /* as if it had computed for five minutes */
	uint64_t before = p.last_ms;
	while (p.last_ms == before)
		assert_false(vmproc_progressed(&p, (uint32_t)*child, VM_WORKS));
}

static void work_for_over_an_hour_is_not_progress(void **state)
{
	pid_t *child = *state;
	struct vmproc_progress p;

	begin(&p, (uint32_t)*child);
	while (!vmproc_progressed(&p, (uint32_t)*child, VM_WORKS))
		usleep(10000);
	p.began_ms -= 3600000; /* as if it had worked briefly now and then */
	uint64_t before = p.last_ms;
	while (p.last_ms == before)
		assert_false(vmproc_progressed(&p, (uint32_t)*child, VM_WORKS));
}

static void unknown_process_does_not_progress(void **state)
{
	struct vmproc_progress p;

	begin(&p, 0);
	assert_false(vmproc_progressed(&p, 0, VM_WORKS));
	begin(&p, UINT32_MAX);
	assert_false(vmproc_progressed(&p, UINT32_MAX, VM_WORKS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(first_check_is_soon_and_only_measures, setup,
						teardown),
		cmocka_unit_test_setup_teardown(working_process_progresses, setup, teardown),
		cmocka_unit_test_setup_teardown(stopped_process_does_not_progress, setup, teardown),
		cmocka_unit_test_setup_teardown(endless_work_is_not_progress, setup, teardown),
		cmocka_unit_test_setup_teardown(work_for_over_an_hour_is_not_progress, setup,
						teardown),
		cmocka_unit_test(unknown_process_does_not_progress),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
