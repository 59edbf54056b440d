// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <linux/securebits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/privileges.h"

/* Returns one set of capabilities of this process, by its name in /proc/self/status. */
static uint64_t set_of(const char *name)
{
	FILE *f = fopen("/proc/self/status", "re");
	uint64_t set = UINT64_MAX;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, name, strlen(name)) == 0)
			set = strtoull(line + strlen(name) + 1, NULL, 16);
	if (f)
		fclose(f);
	return set;
}

static uint64_t kept_by(const struct privileges *p)
{
	uint64_t set = 0;

	for (size_t i = 0; i < p->n; i++)
		set |= 1ull << p->keeps[i];
	return set;
}

static bool has_only(const struct privileges *p, uint64_t before)
{
	const uint64_t kept = kept_by(p) & before;

	return set_of("CapBnd") == kept && set_of("CapPrm") == kept && set_of("CapEff") == kept &&
	       set_of("CapInh") == 0 && set_of("CapAmb") == 0 &&
	       prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
}

/* Raises an ambient capability. It is then in every set, and must go from each of them. */
static bool raise_ambient(void)
{
	const cap_value_t cap = CAP_NET_RAW;
	cap_t sets = cap_get_proc();
	bool done = sets && cap_set_flag(sets, CAP_INHERITABLE, 1, &cap, CAP_SET) == 0 &&
		    cap_set_proc(sets) == 0 && cap_set_ambient(cap, CAP_SET) == 0;

	cap_free(sets);
	return done;
}

static bool gives_up_the_others(const struct privileges *p)
{
	const uint64_t before = set_of("CapBnd");
	struct err e;

	return raise_ambient() && privileges_bound(p, &e) == 0 && privileges_keep(p, &e) == 0 &&
	       has_only(p, before);
}

/* Locked: root gets nothing by an exec, and nothing can be raised again. */
static bool cannot_regain(const struct privileges *p)
{
	struct err e;

	if (privileges_bound(p, &e) < 0 || privileges_keep(p, &e) < 0)
		return false;
	const unsigned bits = cap_get_secbits();
	return (bits & SECBIT_NOROOT) && (bits & SECBIT_NOROOT_LOCKED) &&
	       (bits & SECBIT_NO_SETUID_FIXUP_LOCKED) && !(bits & SECBIT_NO_SETUID_FIXUP) &&
	       (bits & SECBIT_KEEP_CAPS_LOCKED) && (bits & SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED) &&
	       cap_set_secbits(0) < 0 && !raise_ambient();
}

static void check(bool (*what)(const struct privileges *p), const struct privileges *p)
{
	int status;

	if (geteuid() != 0)
		skip();
	pid_t pid = fork();
	if (pid == 0)
		_exit(what(p) ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void process_keeps_only_its_list(void **state)
{
	check(gives_up_the_others, &privileges_warden);
	check(gives_up_the_others, &privileges_none);
}

static void nothing_can_be_regained(void **state)
{
	check(cannot_regain, &privileges_warden);
	check(cannot_regain, &privileges_none);
}

/* The unit must not take from the warden what it needs, nor leave more to rametd. */
static void unit_of_the_service_has_the_list_of_the_warden(void **state)
{
	static const char option[] = "CapabilityBoundingSet=";
	FILE *f = fopen(SERVICE_UNIT, "re");
	uint64_t listed = 0;
	char line[512], *rest;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, option, sizeof(option) - 1) != 0)
			continue;
		for (char *name = strtok_r(line + sizeof(option) - 1, " \n", &rest); name;
		     name = strtok_r(NULL, " \n", &rest)) {
			cap_value_t cap;

			assert_int_equal(cap_from_name(name, &cap), 0);
			listed |= 1ull << cap;
		}
	}
	fclose(f);
	assert_int_equal(listed, kept_by(&privileges_warden));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(process_keeps_only_its_list),
		cmocka_unit_test(nothing_can_be_regained),
		cmocka_unit_test(unit_of_the_service_has_the_list_of_the_warden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
