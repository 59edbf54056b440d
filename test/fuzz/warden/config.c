// SPDX-License-Identifier: Apache-2.0
/* Parses a configuration file with any content: it is accepted or refused with an error text, and
 * accepted values are valid. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/config/config.h"
#include "proto/warden.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int right)
{
	if (!right)
		abort();
}

static void expect_path(const char *path, size_t size)
{
	expect(memchr(path, '\0', size) != NULL && (path[0] == '/' || !path[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config c, again;
	struct err e = {0};

	config_defaults(&c);
	int r = config_parse(&c, "fuzz", (const char *)data, size, &e);
	expect(r == 0 || (e.code == r && !strncmp(e.text, "fuzz:", 5)));
	expect_path(c.vmm, sizeof(c.vmm));
	expect_path(c.kernel, sizeof(c.kernel));
	expect_path(c.cgroup, sizeof(c.cgroup));
	expect_path(c.run_dir, sizeof(c.run_dir));
	expect(strlen(c.run_dir) <= 80 && memchr(c.user, '\0', sizeof(c.user)));
	expect(c.listen_port >= 1 && c.listen_port <= 65535);
	expect(c.max_vms >= 1 && c.max_vms <= WARDEN_SLOTS_MAX);
	if (r == 0) {
		again = c;
		expect(config_parse(&again, "fuzz", (const char *)data, size, &e) == 0);
		expect(memcmp(&again, &c, sizeof(c)) == 0);
	}
	return 0;
}
