// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/images/guest-start.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/random.h"

const struct agent_exec priming_calls[PRIMING_CALLS] = {
	{.language = AGENT_PYTHON, .code = "print(end='')", .code_len = 13, .prepares = true},
	{.language = AGENT_BASH, .code = "true", .code_len = 4, .prepares = true},
};

struct agent_bytes reseed_bytes(const char *name, bool user_generators)
{
	uint8_t entropy[AGENT_ENTROPY_LEN];
	struct timespec now;
	char host[16];

	random_bytes(entropy, sizeof(entropy));
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(host, sizeof(host), "ramet-%.8s", name);
	const struct agent_bytes request = agent_reseed_bytes(
		entropy, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec, user_generators, host);
	explicit_bzero(entropy, sizeof(entropy));
	return request;
}
