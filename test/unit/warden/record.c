// SPDX-License-Identifier: Apache-2.0
/* Which requests a warden refuses after crashes of its predecessors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "orchestrator/warden/record.h"

static struct warden_record *r;

static struct warden_msg request(uint32_t type, uint32_t slot)
{
	return (struct warden_msg){.type = type, .slot = slot};
}

static bool refuses(uint32_t type, uint32_t slot)
{
	struct warden_msg m = request(type, slot);

	return record_refuses(r, &m);
}

static void serve(uint32_t type, uint32_t slot)
{
	struct warden_msg m = request(type, slot);

	record_begin(r, &m);
	record_end(r);
}

/* A warden ends while it serves this request, and the next one begins. */
static void end_in(uint32_t type, uint32_t slot, bool crashed)
{
	struct warden_msg m = request(type, slot);
	uint32_t found_type = 0, found_slot = 0;

	record_begin(r, &m);
	assert_int_equal(record_take_over(r, crashed, &found_type, &found_slot), crashed);
	assert_int_equal(found_type, type);
	assert_int_equal(found_slot, slot);
	assert_false(record_take_over(r, crashed, &found_type, &found_slot));
}

static void second_crash_in_a_row_refuses_the_request(void **state)
{
	const uint32_t last = WARDEN_SLOTS_MAX - 1;

	end_in(WARDEN_OOM, last, true);
	assert_false(refuses(WARDEN_OOM, last));
	serve(WARDEN_OOM, 3); /* another request does not end the row */
	end_in(WARDEN_SPAWN, last, true);
	end_in(WARDEN_OOM, last, true);
	assert_true(refuses(WARDEN_OOM, last));
	assert_false(refuses(WARDEN_SPAWN, last));
	assert_false(refuses(WARDEN_OOM, 3));
}

static void success_ends_the_row(void **state)
{
	end_in(WARDEN_SPAWN, 7, true);
	serve(WARDEN_SPAWN, 7);
	end_in(WARDEN_SPAWN, 7, true);
	assert_false(refuses(WARDEN_SPAWN, 7));
}

static void kill_is_no_crash(void **state)
{
	for (int i = 0; i < 3; i++)
		end_in(WARDEN_NO_EGRESS, 7, false);
	assert_false(refuses(WARDEN_NO_EGRESS, 7));
}

static void crash_between_requests_refuses_none(void **state)
{
	uint32_t type, slot;

	serve(WARDEN_SPAWN, 9);
	for (int i = 0; i < 3; i++)
		assert_false(record_take_over(r, true, &type, &slot));
	assert_false(refuses(WARDEN_SPAWN, 9));
}

static void no_record_refuses_nothing(void **state)
{
	struct warden_msg m = request(WARDEN_SPAWN, 1);
	uint32_t type, slot;

	record_begin(NULL, &m);
	record_end(NULL);
	assert_false(record_take_over(NULL, true, &type, &slot));
	assert_false(record_refuses(NULL, &m));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(second_crash_in_a_row_refuses_the_request),
		cmocka_unit_test(success_ends_the_row),
		cmocka_unit_test(kill_is_no_crash),
		cmocka_unit_test(crash_between_requests_refuses_none),
		cmocka_unit_test(no_record_refuses_nothing),
	};

	r = warden_record_new();
	return r ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
