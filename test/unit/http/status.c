// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "orchestrator/http/internal.h"

static void each_failure_has_a_status_and_a_name(void **state)
{
	for (enum failure_code code = FAIL_NONE + 1; code < FAILURE_CODES; code++) {
		if (failure_status(code) < 400 || failure_status(code) > 599)
			fail_msg("code %d has the status %d", code, failure_status(code));
		if (!failure_code_name(code))
			fail_msg("code %d has no name", code);
	}
}

/* Clients see only a code's status and name, so a second code with the same two is superfluous. */
static void no_two_failures_have_the_same_status_and_name(void **state)
{
	for (enum failure_code a = FAIL_NONE + 1; a < FAILURE_CODES; a++)
		for (enum failure_code b = a + 1; b < FAILURE_CODES; b++)
			if (failure_status(a) == failure_status(b) &&
			    !strcmp(failure_code_name(a), failure_code_name(b)))
				fail_msg("two codes have the status %d and the name %s",
					 failure_status(a), failure_code_name(a));
}

static void expect(enum failure_code code, int status, const char *name)
{
	assert_int_equal(failure_status(code), status);
	assert_string_equal(failure_code_name(code), name);
}

static void one_name_can_have_two_statuses(void **state)
{
	expect(FAIL_SERVICE_BUSY, 503, "busy");
	expect(FAIL_IN_USE, 409, "busy");
	expect(FAIL_MERGED, 404, "merged");
	expect(FAIL_MERGED_DURING_CALL, 409, "merged");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_failure_has_a_status_and_a_name),
		cmocka_unit_test(no_two_failures_have_the_same_status_and_name),
		cmocka_unit_test(one_name_can_have_two_statuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
