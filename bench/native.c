// SPDX-License-Identifier: Apache-2.0
#include "bench/native.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/turn.h"
#include "bench/stats.h"

void native_die(const char *what)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
	exit(EXIT_FAILURE);
}

double native_ms_since(uint64_t start)
{
	return (double)(bench_now_ns() - start) / 1e6;
}

static unsigned number(const char *name, const char *text, unsigned long max)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (*end || !v || v > max) {
		fprintf(stderr, "%s: %s takes a number from 1 to %lu\n",
			program_invocation_short_name, name, max);
		exit(EXIT_FAILURE);
	}
	return (unsigned)v;
}

int native_options(int argc, char **argv, struct vmm_options *o, unsigned *runs)
{
	int i = 1;

	/* Scheduled with a short slice, as the service is. Its VMs must not inherit that. */
	turn_soon_alone();
	for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
		if (!strcmp(argv[i], "--ram-mib"))
			o->ram_mib = number("--ram-mib", argv[i + 1], 65536);
		else if (!strcmp(argv[i], "--vcpus"))
			o->vcpus = number("--vcpus", argv[i + 1], 32);
		else if (!strcmp(argv[i], "--runs"))
			*runs = number("--runs", argv[i + 1], 100000);
		else
			native_die("the options are --ram-mib, --vcpus and --runs");
	}
	return i;
}

void native_print_floor(const char *exe, const struct vmm_options *o, unsigned runs)
{
	char command[512], text[4096];
	size_t len;
	FILE *p;

	/* kvm-floor puts all RAM in one slot, which must end at 3 GiB. */
	snprintf(command, sizeof(command), "%s --vcpus %u --ram-mib %u --runs %u", exe, o->vcpus,
		 o->ram_mib < 3072 ? o->ram_mib : 3072, runs);
	p = popen(command, "r");
	len = p ? fread(text, 1, sizeof(text) - 1, p) : 0;
	if (!p || pclose(p) || len < 3 || text[0] != '{')
		native_die("kvm-floor failed");
	text[len] = '\0';
	*strrchr(text, '}') = '\0';
	printf("%s, ", text + 1);
}
