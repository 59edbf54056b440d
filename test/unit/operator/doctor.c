// SPDX-License-Identifier: Apache-2.0
/* Checks the findings for sample trees of /proc, /sys and /dev. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "orchestrator/operator/doctor.h"
#include "test/unit/operator/host-file.h"

#define FLAGS_GOOD "flags\t\t: fpu vmx ept constant_tsc nonstop_tsc\n"
#define CPU	   "/sys/devices/system/cpu/"
#define SOURCE	   "/sys/devices/system/clocksource/clocksource0/current_clocksource"

static char root[64];
static struct config config;
static char said[16384];
static unsigned n_said[DOCTOR_PROBLEM + 1];

static void put(const char *name, const char *text)
{
	put_host_file(root, name, text);
}

static void drop(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s%s", root, name);
	assert_int_equal(unlink(path), 0);
}

/* A host without fault. */
static int make_host(void **state)
{
	snprintf(root, sizeof(root), "/tmp/ramet-doctor-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	config = (struct config){.network = "10.251.0.0/17", .state_dir = "/var/lib/ramet"};
	put("/dev/kvm", "");
	put("/proc/cpuinfo", "processor\t: 0\n" FLAGS_GOOD "bugs\t\t:\n");
	put("/proc/meminfo",
	    "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:   8000000 kB\n");
	put("/proc/sys/vm/overcommit_memory", "0\n");
	put("/proc/sys/kernel/osrelease", "6.12.30+deb13-amd64\n");
	put("/sys/kernel/security/lsm", "lockdown,capability,landlock,yama,apparmor\n");
	put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids\n");
	put("/sys/fs/cgroup/system.slice/ramet-vms.service/cgroup.procs", "");
	put("/run/systemd/system/x", "");
	put(SOURCE, "tsc\n");
	return 0;
}

static int remove_host(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static void note(void *arg, const struct doctor_finding *f)
{
	size_t len = strlen(said);

	assert_int_equal(f->remedy == NULL, f->result == DOCTOR_OK);
	n_said[f->result]++;
	snprintf(said + len, sizeof(said) - len, "%d %s: %s\n", f->result, f->check, f->text);
}

static const char *check(bool cores_are_apart)
{
	const struct doctor_host h = {
		.root = root, .config = &config, .cores_are_apart = cores_are_apart, .found = note};

	said[0] = '\0';
	memset(n_said, 0, sizeof(n_said));
	doctor_check_files(&h);
	return said;
}

/* Asserts that a file with this text leads to one finding other than ok, that one. */
static void expect(const char *file, const char *text, enum doctor_result result, const char *what)
{
	put(file, text);
	check(false);
	if (n_said[DOCTOR_WARNING] + n_said[DOCTOR_PROBLEM] != 1 || n_said[result] != 1 ||
	    !strstr(said, what))
		fail_msg("%s with \"%s\": not %d \"%s\" alone, but:\n%s", file, text, result, what,
			 said);
}

static void good_host_has_no_finding(void **state)
{
	check(false);
	if (n_said[DOCTOR_WARNING] + n_said[DOCTOR_PROBLEM])
		fail_msg("%s", said);
	assert_int_equal(n_said[DOCTOR_OK], 11);
}

static void missing_kvm_names_its_cause(void **state)
{
	drop("/dev/kvm");
	check(false);
	assert_non_null(strstr(said, "2 kvm: there is no /dev/kvm, although the CPU"));
	put("/proc/cpuinfo", "flags\t\t: fpu constant_tsc nonstop_tsc\n");
	check(false);
	assert_non_null(strstr(said, "2 kvm: there is no /dev/kvm, and the CPU shows no"));
}

static void pvm_is_a_problem(void **state)
{
	expect("/sys/module/kvm_pvm/refcnt", "0\n", DOCTOR_PROBLEM, "kvm: KVM is PVM");
}

static void nested_host_is_named(void **state)
{
	put("/sys/class/dmi/id/sys_vendor", "ACME Cloud\n");
	expect("/proc/cpuinfo", "flags\t\t: vmx ept hypervisor constant_tsc nonstop_tsc\n",
	       DOCTOR_WARNING, "nested: this host is itself a VM (ACME Cloud)");
}

static void slow_page_tables_are_a_problem(void **state)
{
	expect("/proc/cpuinfo", "flags\t\t: vmx constant_tsc nonstop_tsc\n", DOCTOR_PROBLEM,
	       "cpu: the CPU has no second level of page tables (ept)");
	expect("/proc/cpuinfo", "flags\t\t: svm constant_tsc nonstop_tsc\n", DOCTOR_PROBLEM,
	       "cpu: the CPU has no second level of page tables (npt)");
}

static void each_weakness_of_the_cpu_is_a_finding(void **state)
{
	put(CPU "smt/active", "1\n");
	put("/sys/kernel/mm/ksm/run", "1\n");
	check(false);
	assert_int_equal(n_said[DOCTOR_WARNING], 2);
	assert_non_null(strstr(said, "1 isolation: SMT is on"));
	assert_non_null(strstr(said, "1 isolation: KSM merges"));
	check(true);
	assert_int_equal(n_said[DOCTOR_WARNING], 1);
}

static void old_kernel_is_named(void **state)
{
	expect("/proc/sys/kernel/osrelease", "5.10.0-30\n", DOCTOR_WARNING,
	       "Linux 5.10.0-30 is older");
	expect("/proc/sys/kernel/osrelease", "6.1.0-37\n", DOCTOR_WARNING, "from 6.7 on");
	expect("/proc/sys/kernel/osrelease", "unreadable\n", DOCTOR_WARNING, "cannot be read");
}

static void missing_landlock_is_named(void **state)
{
	expect("/sys/kernel/security/lsm", "capability,landlocked,yama\n", DOCTOR_WARNING,
	       "landlock: Landlock, which confines the service further, is off");
}

static void missing_controllers_are_named(void **state)
{
	expect("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids memory2\n", DOCTOR_PROBLEM,
	       "no memory controller");
	expect("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n", DOCTOR_WARNING,
	       "no io controller");
	expect("/sys/fs/cgroup/cgroup.controllers", "\n", DOCTOR_PROBLEM,
	       "cgroup v2 is mounted at /sys/fs/cgroup, but no controller is available");
	drop("/sys/fs/cgroup/cgroup.controllers");
	check(false);
	assert_non_null(strstr(said, "2 cgroup: cgroup v2 is not mounted"));
}

static void vms_below_the_root_cgroup_are_named(void **state)
{
	expect("/sys/fs/cgroup/ramet/ramet/cgroup.procs", "", DOCTOR_WARNING,
	       "delegation: VMs that an earlier version started");
}

static void unit_that_does_not_run_is_named(void **state)
{
	char command[160];

	snprintf(command, sizeof(command), "rm -r %s/sys/fs/cgroup/system.slice", root);
	assert_int_equal(system(command), 0);
	check(false);
	assert_non_null(strstr(said, "1 delegation: ramet-vms.service"));
	snprintf(command, sizeof(command), "rm -r %s/run", root);
	assert_int_equal(system(command), 0);
	check(false);
	assert_non_null(strstr(said, "0 delegation: systemd does not run here"));
}

static void unsteady_clock_is_named(void **state)
{
	expect(SOURCE, "hpet\n", DOCTOR_WARNING, "tsc: the clock source is hpet");
	put(SOURCE, "tsc\n");
	expect("/proc/cpuinfo", "flags\t\t: vmx ept constant_tsc\n", DOCTOR_WARNING,
	       "does not promise a steady TSC");
}

static void memory_is_checked(void **state)
{
	expect("/proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n", DOCTOR_WARNING,
	       "memory: the host has 976 MiB");
	expect("/proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 400000 kB\n", DOCTOR_PROBLEM,
	       "memory: only 390 of 15625 MiB");
	put("/proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n");
	expect("/proc/sys/vm/overcommit_memory", "2\n", DOCTOR_PROBLEM,
	       "vm.overcommit_memory is 2");
}

static void other_firewalls_are_named(void **state)
{
	expect("/sys/class/net/docker0/mtu", "1500\n", DOCTOR_WARNING, "firewall: Docker");
	expect("/run/firewalld/x", "", DOCTOR_WARNING, "firewall: firewalld");
	expect("/etc/ufw/ufw.conf", "# x\nENABLED=yes\n", DOCTOR_WARNING,
	       "firewall: ufw is enabled");
	expect("/proc/net/ip_tables_names", "filter\n", DOCTOR_WARNING,
	       "firewall: rules of the old iptables");
	config.network[0] = '\0';
	check(false);
	assert_int_equal(n_said[DOCTOR_WARNING], 0);
}

/* Missing files are findings or are passed over; nothing fails. */
static void empty_root_is_no_crash(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s/*", root);
	assert_int_equal(system(command), 0);
	check(false);
	assert_true(n_said[DOCTOR_PROBLEM] >= 2);
}

/* --- live ------------------------------------------------------------------------------------- */

static void disk_is_measured_in_the_nearest_folder(void **state)
{
	const struct doctor_host h = {.root = root, .config = &config, .found = note};

	said[0] = '\0';
	doctor_check_live(&h); /* state_dir does not exist below root */
	assert_non_null(strstr(said, " disk: "));
	assert_non_null(strstr(said, root));
	assert_non_null(strstr(said, " reflink: "));
	assert_non_null(strstr(said, " flush: "));
	assert_non_null(strstr(said, " clock: "));
}

static void limits_too_small_for_max_vms_are_named(void **state)
{
	const struct doctor_host h = {.root = root, .config = &config, .found = note};

	said[0] = '\0';
	config.max_vms = UINT32_MAX;
	doctor_check_live(&h);
	assert_non_null(strstr(said, "1 limits: fs.nr_open is "));
}

/* --- output ----------------------------------------------------------------------------------- */

static enum doctor_result print(bool json, const struct doctor_finding *f, size_t n)
{
	FILE *out = fmemopen(said, sizeof(said), "w");
	struct doctor_printer p = {.out = out, .json = json};

	doctor_print_begin(&p);
	for (size_t i = 0; i < n; i++)
		doctor_print(&p, &f[i]);
	enum doctor_result worst = doctor_print_end(&p);
	fclose(out);
	return worst;
}

static const struct doctor_finding findings[] = {
	{"kvm", DOCTOR_OK, "fine", NULL},
	{"disk", DOCTOR_WARNING, "a \"text\"\n\xff\x1b[31m", "do\\this"},
};

static void json_is_escaped(void **state)
{
	assert_int_equal(print(true, findings, 2), DOCTOR_WARNING);
	assert_string_equal(
		said, "{\"findings\": [\n"
		      "  {\"check\": \"kvm\", \"result\": \"ok\", \"text\": \"fine\"},\n"
		      "  {\"check\": \"disk\", \"result\": \"warning\", \"text\": "
		      "\"a \\\"text\\\"\\u000a\\u00ff\\u001b[31m\", \"remedy\": \"do\\\\this\"}\n"
		      "], \"result\": \"warning\"}\n");
}

static void text_has_no_control_characters(void **state)
{
	const struct doctor_finding worse = {"kvm", DOCTOR_PROBLEM, "gone", "repair"};
	/* CSI as one byte, and in UTF-8. */
	const struct doctor_finding csi = {"kvm", DOCTOR_OK,
					   "a\x9b"
					   "1mb",
					   "c\xc2\x9b"
					   "1md\x7f"};

	assert_int_equal(print(false, &csi, 1), DOCTOR_OK);
	assert_non_null(strstr(said, "a?1mb\n"));
	assert_non_null(strstr(said, "-> c??1md?\n"));
	assert_int_equal(print(false, findings, 2), DOCTOR_WARNING);
	assert_null(strchr(said, '\x1b'));
	assert_non_null(strstr(said, "-> do\\this\n"));
	assert_non_null(strstr(said, "1 ok, 1 warnings, 0 problems\n"));
	assert_int_equal(print(false, &worse, 1), DOCTOR_PROBLEM);
	assert_int_equal(print(false, findings, 1), DOCTOR_OK);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, make_host, remove_host)
	const struct CMUnitTest tests[] = {
		T(good_host_has_no_finding),
		T(missing_kvm_names_its_cause),
		T(pvm_is_a_problem),
		T(nested_host_is_named),
		T(slow_page_tables_are_a_problem),
		T(each_weakness_of_the_cpu_is_a_finding),
		T(old_kernel_is_named),
		T(missing_landlock_is_named),
		T(missing_controllers_are_named),
		T(vms_below_the_root_cgroup_are_named),
		T(unit_that_does_not_run_is_named),
		T(unsteady_clock_is_named),
		T(memory_is_checked),
		T(other_firewalls_are_named),
		T(empty_root_is_no_crash),
		T(disk_is_measured_in_the_nearest_folder),
		T(limits_too_small_for_max_vms_are_named),
		T(json_is_escaped),
		T(text_has_no_control_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
