// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "orchestrator/operator/command.h"
#include "test/unit/service/world.h"

static void checks_are_listed_by_name(void **state)
{
	static const struct command *const tables[] = {host_commands, NULL};
	struct world *w = *state;
	const struct command_env env = {.config = &w->config, .service = w->service};
	struct arguments args;
	enum command_wait wait;
	struct err e;
	char *said;
	size_t len;

	world_wait_ready(w);
	assert_int_equal(arguments_parse(&args, "checks", sizeof("checks"), &e), 0);
	FILE *out = open_memstream(&said, &len);
	assert_int_equal(command_run(tables, &env, &args, out, &wait), COMMAND_DONE);
	fclose(out);
	assert_non_null(strstr(said, "template  ok\n"));
	assert_non_null(strstr(said, "warden    ok\n"));
	free(said);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(checks_are_listed_by_name, world_setup,
						world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
