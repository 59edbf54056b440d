// SPDX-License-Identifier: Apache-2.0
/* Checks the warnings for sample trees of sysfs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "orchestrator/operator/posture.h"
#include "test/unit/operator/host-file.h"

static char sys[64];

static int make_tree(void **state)
{
	snprintf(sys, sizeof(sys), "/tmp/ramet-posture-XXXXXX");
	return mkdtemp(sys) ? 0 : -1;
}

static int remove_tree(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", sys);
	return system(command);
}

static void put(const char *name, const char *text)
{
	put_host_file(sys, name, text);
}

#define CPU "devices/system/cpu/"

static char said[4096];

static void note(void *arg, const char *sentence)
{
	strncat(said, sentence, sizeof(said) - strlen(said) - 2);
	strcat(said, "\n");
}

static const char *check(bool cores_are_apart)
{
	said[0] = '\0';
	posture_check(sys, cores_are_apart, note, NULL);
	return said;
}

static void missing_files_cause_no_warning(void **state)
{
	assert_string_equal(check(false), "");
}

static void hardened_host_causes_no_warning(void **state)
{
	put(CPU "smt/active", "0\n");
	put("kernel/mm/ksm/run", "0\n");
	put("module/kvm/parameters/nx_huge_pages", "Y\n");
	put(CPU "vulnerabilities/mds", "Mitigation: Clear CPU buffers; SMT vulnerable\n");
	put(CPU "vulnerabilities/meltdown", "Not affected\n");
	put(CPU "vulnerabilities/itlb_multihit", "KVM: Mitigation: Split huge pages\n");
	assert_string_equal(check(false), "");
}

static void smt_is_fine_when_cores_are_not_shared(void **state)
{
	put(CPU "smt/active", "1\n");
	assert_non_null(strstr(check(false), "boot with nosmt"));
	assert_string_equal(check(true), "");
	put(CPU "smt/active", "");
	assert_string_equal(check(false), "");
}

static void ksm_causes_a_warning(void **state)
{
	put("kernel/mm/ksm/run", "1\n");
	assert_non_null(strstr(check(true), "KSM"));
	put("kernel/mm/ksm/run", "2\n");
	assert_string_equal(check(true), "");
}

static void huge_pages_cause_a_warning_on_affected_cpus(void **state)
{
	put("module/kvm/parameters/nx_huge_pages", "never\n");
	assert_string_equal(check(true), "");
	put(CPU "vulnerabilities/itlb_multihit", "Not affected\n");
	assert_string_equal(check(true), "");
	put(CPU "vulnerabilities/itlb_multihit", "KVM: Vulnerable\n");
	assert_non_null(strstr(check(true), "kvm.nx_huge_pages=auto"));
	put("module/kvm/parameters/nx_huge_pages", "Y\n");
	assert_null(strstr(check(true), "kvm.nx_huge_pages=auto"));
}

static void warnings_quote_the_kernel(void **state)
{
	put(CPU "vulnerabilities/l1tf", "Mitigation: PTE Inversion; VMX: vulnerable\n");
	put(CPU "vulnerabilities/mds", "Vulnerable: Clear CPU buffers attempted, no microcode\n");
	put(CPU "vulnerabilities/spectre_v2", "Mitigation: Retpolines; BHI: Vulnerable\n");
	put(CPU "vulnerabilities/srbds", "Mitigation: Microcode\n");
	const char *text = check(true);
	assert_non_null(strstr(text, "vulnerable to l1tf (\"Mitigation: PTE Inversion; VMX: vuln"));
	assert_non_null(
		strstr(text, "vulnerable to mds (\"Vulnerable: Clear CPU buffers attempted"));
	assert_non_null(strstr(text, "vulnerable to spectre_v2 "));
	assert_null(strstr(text, "srbds"));
}

static void long_names_and_texts_are_truncated(void **state)
{
	char name[300] = CPU "vulnerabilities/", text[2000];

	memset(name + strlen(name), 'n', 200);
	memset(text, 'x', sizeof(text) - 1);
	memcpy(text, "Vulnerable", 10);
	text[sizeof(text) - 1] = '\0';
	put(name, text);
	assert_in_range(strlen(check(true)), 300, 700);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_tree, remove_tree)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(missing_files_cause_no_warning),
		TEST(hardened_host_causes_no_warning),
		TEST(smt_is_fine_when_cores_are_not_shared),
		TEST(ksm_causes_a_warning),
		TEST(huge_pages_cause_a_warning_on_affected_cpus),
		TEST(warnings_quote_the_kernel),
		TEST(long_names_and_texts_are_truncated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
