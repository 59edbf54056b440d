// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/warden/account.h"

static void accounts_are_found_by_name_and_number(void **state)
{
	struct account a;
	struct err e;

	assert_int_equal(account_find(&a, "nobody", &e), 0);
	assert_int_equal(a.uid, 65534);
	assert_int_equal(account_find(&a, "64123", &e), 0);
	assert_int_equal(a.uid, 64123);
	assert_int_equal(a.gid, 64123);
}

static void root_and_unknown_accounts_are_refused(void **state)
{
	static const struct {
		const char *name;
		int error;
		const char *says;
	} cases[] = {
		{"root", EPERM, "user root is root"},
		{"0", EINVAL, "user 0 is not a uid from 1 to"},
		{"4294967295", EINVAL, "is not a uid"},
		{"99999999999999999999999", EINVAL, "is not a uid"},
		{"12x", EINVAL, "is not a uid"},
		{"no-such-account", ENOENT, "create it with `useradd --system"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct account a;
		struct err e = {0};

		assert_int_equal(account_find(&a, cases[i].name, &e), -cases[i].error);
		if (!strstr(e.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", e.text, cases[i].says);
	}
}

/* Returns true if the line `name` of /proc/self/status has this value. Reports a difference. */
static bool status_is(const char *name, const char *value)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	bool is = false;

	while (f && fgets(line, sizeof(line), f)) {
		size_t len = strlen(name);

		if (strncmp(line, name, len) == 0 && line[len] == ':')
			is = strcmp(line + len + 1, value) == 0;
	}
	if (f)
		fclose(f);
	if (!is)
		fprintf(stderr, "%s is not%s", name, value);
	return is;
}

static int become_and_check(void)
{
	static const char *const none = "\t0000000000000000\n";
	struct err e;

	if (account_become(64123, 64124, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	bool right = status_is("Uid", "\t64123\t64123\t64123\t64123\n") &&
		     status_is("Gid", "\t64124\t64124\t64124\t64124\n") &&
		     status_is("Groups", "\t \n") && status_is("CapInh", none) &&
		     status_is("CapPrm", none) && status_is("CapEff", none) &&
		     status_is("CapBnd", none) && status_is("CapAmb", none) &&
		     status_is("NoNewPrivs", "\t1\n") && setuid(0) < 0 && setgid(0) < 0;
	return right ? 0 : 1;
}

static void account_become_drops_all_privileges(void **state)
{
	int status;

	if (geteuid() != 0)
		skip();
	pid_t pid = fork();
	if (pid == 0)
		_exit(become_and_check());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accounts_are_found_by_name_and_number),
		cmocka_unit_test(root_and_unknown_accounts_are_refused),
		cmocka_unit_test(account_become_drops_all_privileges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
