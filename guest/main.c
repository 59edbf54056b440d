// SPDX-License-Identifier: Apache-2.0
/* One static binary: the kernel starts it as PID 1, which starts it again as the agent. */
#include <string.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/init.h"
#include "guest/say.h"

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "agent") == 0)
		return agent_main(argc - 1, argv + 1);
	if (getpid() == 1)
		return init_main();
	say("usage: %s agent [--unix PATH] [--run-dir DIR] [--grace-ms N] [--dry-run-system]",
	    argv[0]);
	return 2;
}
