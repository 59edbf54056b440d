// SPDX-License-Identifier: Apache-2.0
/* A sandbox whose connection to the agent is lost twice before the new one is due. */
#include "orchestrator/sandbox/sandbox.h"
#include "test/unit/core/world.h"

static void test_two_losses_make_one_new_connection(void **state)
{
	struct world *w = *state;
	struct failure f;
	struct made m;
	struct done d;
	struct run r;

	world_create(w, &m, NULL);
	struct sandbox *s = sandbox_find(w->core, TENANT, m.view.id, &f);
	assert_non_null(s);
	sandbox_lose_agent(s, "the test says so");
	uint64_t due_ms = s->redial.due_ms;
	sandbox_lose_agent(s, "the test says so again");
	assert_int_equal(s->redial.due_ms, due_ms);
	world_exec(w, &r, m.view.id, "out on");
	assert_false(r.failed);

	/* The second of two connections would be made when the VM is gone. */
	sandbox_lose_agent(s, "the test says so");
	sandbox_lose_agent(s, "the test says so again");
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
