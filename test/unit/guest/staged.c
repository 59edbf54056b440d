// SPDX-License-Identifier: Apache-2.0
/* What the agent does with a staged file, with workers that never run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>

#include "../../../guest/files/staged.c"

static unsigned starts, removals;
static int start_result;

int worker_start(struct conn *c, const struct worker_job *job, struct err *e)
{
	assert_null(c);
	starts++;
	return start_result;
}

void staged_remove(struct staged_file *f)
{
	removals++;
	f->state = STAGED_OVER;
}

static void freed(enum staged_state state)
{
	struct err e;
	struct staged_file *f = staged_new(&e);

	assert_non_null(f);
	assert_int_equal(f->state, STAGED_NEW);
	f->state = state;
	starts = removals = 0;
	staged_free(f);
}

static void test_worker_removes_the_file_that_another_left(void **state)
{
	freed(STAGED_OPEN);
	assert_true(starts == 1 && removals == 0);
}

static void test_agent_removes_the_file_if_no_worker_can(void **state)
{
	start_result = -EAGAIN;
	freed(STAGED_OPEN);
	assert_true(starts == 1 && removals == 1);
	start_result = 0;
}

static void test_nothing_is_removed_if_nothing_was_left(void **state)
{
	freed(STAGED_NEW);
	assert_int_equal(starts, 0);
	freed(STAGED_OVER);
	assert_int_equal(starts, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worker_removes_the_file_that_another_left),
		cmocka_unit_test(test_agent_removes_the_file_if_no_worker_can),
		cmocka_unit_test(test_nothing_is_removed_if_nothing_was_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
