// SPDX-License-Identifier: Apache-2.0
/* A sandbox whose connection to the agent is lost twice before the new one is due. */
#include "orchestrator/exec/internal.h"
#include "orchestrator/sandbox/sandbox.h"
#include "test/unit/service/world.h"

static void test_two_losses_make_one_new_connection(void **state)
{
	struct world *w = *state;
	struct failure f;
	struct made m;
	struct done d;
	struct run r;

	world_create(w, &m, NULL);
	struct sandbox *s = sandbox_find(w->service, TENANT, m.view.id, &f);
	assert_non_null(s);
	struct exec_lane *lane = &exec_of(s)->main;
	lane_lose(lane, "the test says so");
	uint64_t due_ms = lane->redial.due_ms;
	lane_lose(lane, "the test says so again");
	assert_int_equal(lane->redial.due_ms, due_ms);
	world_exec(w, &r, m.view.id, "out on");
	assert_false(r.failed);

	/* The second of two connections would be made when the VM is gone. */
	lane_lose(lane, "the test says so");
	lane_lose(lane, "the test says so again");
	world_delete(w, &d, m.view.id);
	assert_false(d.failed);
	world_create(w, &m, NULL);
	world_exec(w, &r, m.view.id, "out on");
	assert_false(r.failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_two_losses_make_one_new_connection,
						world_setup, world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
