// SPDX-License-Identifier: Apache-2.0
/* One static binary: the kernel runs it as PID 1, which runs it again as the agent. */
#include <string.h>
#include <unistd.h>

#include "guest/agent/agent.h"
#include "guest/init/init.h"
#include "guest/log-console.h"

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "agent") == 0)
		return agent_main(argc - 1, argv + 1);
	if (getpid() == 1)
		return init_main();
	log_console(
		"usage: %s agent [--unix PATH] [--run-dir DIR] [--grace-ms N] [--dry-run-system]",
		argv[0]);
	return 2;
}
