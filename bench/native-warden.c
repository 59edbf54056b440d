// SPDX-License-Identifier: Apache-2.0
/*
 * rametd's warden for `bench native-service` and `bench thousand`, without the supervisor. It
 * starts the rametd that is its first argument as the service, and uses only the cgroup controllers
 * that this machine's cgroup v2 has, where rametd itself would refuse to start. Prints the missing
 * ones, on one line.
 *
 *   native-warden RAMETD [--NAME=VALUE ...]
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/config/config.h"
#include "orchestrator/warden/warden.h"

static const char *const all[] = {"memory", "cpu", "pids"};
static const char *present[ARRAY_LEN(all) + 1];

static bool names(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += len)
		if ((p == list || p[-1] == ' ') && strchr(" \n", p[len]))
			return true;
	return false;
}

static void find_controllers(const char *mount)
{
	char path[512], list[512] = "";
	size_t n = 0;

	snprintf(path, sizeof(path), "%s/cgroup.controllers", mount);
	FILE *f = fopen(path, "re");
	if (f && !fgets(list, sizeof(list), f))
		list[0] = '\0';
	if (f)
		fclose(f);
	printf("missing controllers:");
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (names(list, all[i]))
			present[n++] = all[i];
		else
			printf(" %s", all[i]);
	}
	puts("");
	fflush(stdout);
}

/* Returns where the first cgroup v2 hierarchy is mounted. */
static const char *cgroup_mount(void)
{
	static char point[256];
	char line[1024];
	FILE *f = fopen("/proc/self/mountinfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, " - cgroup2 ") &&
		    sscanf(line, "%*d %*d %*s %*s %255s", point) == 1)
			break;
	if (f)
		fclose(f);
	return point;
}

int main(int argc, char *argv[])
{
	char *const service[] = {"rametd", "--role=service", NULL};
	struct config config;
	struct err e;

	if (argc < 2 || config_load(&config, argc - 1, argv + 1, &e) < 0) {
		fprintf(stderr, "native-warden: %s\n", argc < 2 ? "rametd is missing" : e.text);
		return 1;
	}
	log_init("warden", config_log_level(&config));
	find_controllers(cgroup_mount());
	struct warden_options options = {
		.config = &config,
		.service = open(argv[1], O_RDONLY | O_CLOEXEC),
		.service_argv = service,
		.controllers = present,
	};
	if (options.service < 0) {
		fprintf(stderr, "native-warden: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	int r = warden_run(&options, &e);
	if (r < 0)
		log_error("%s", e.text);
	close(options.service);
	return r < 0;
}
