// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/operator/posture.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/text-file.h"

#define VALUE_MAX    256
#define SENTENCE_MAX 768

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE	  62
#define PR_SCHED_CORE_GET 0
#endif

struct check {
	const char *sys;
	bool cores_are_apart;
	void (*notify)(void *arg, const char *sentence);
	void *arg;
};

/* Reads the first line of a file below sysfs; empty when there is none. */
static void read_value(const struct check *c, const char *name, char out[static VALUE_MAX])
{
	char path[PATH_MAX];

	out[0] = '\0';
	if (snprintf(path, sizeof(path), "%s/%s", c->sys, name) >= (int)sizeof(path))
		return;
	text_file_read(AT_FDCWD, path, out, VALUE_MAX);
	out[strcspn(out, "\n")] = '\0';
}

static void check_smt(const struct check *c)
{
	char value[VALUE_MAX];

	read_value(c, "devices/system/cpu/smt/active", value);
	if (value[0] == '1' && !c->cores_are_apart)
		c->notify(
			c->arg,
			"SMT is on and VMs may share a core, through whose caches a VM can observe "
			"another: use a kernel with core scheduling (CONFIG_SCHED_CORE) and "
			"core_scheduling = yes, or boot with nosmt");
}

static void check_ksm(const struct check *c)
{
	char value[VALUE_MAX];

	read_value(c, "kernel/mm/ksm/run", value);
	if (value[0] == '1')
		c->notify(
			c->arg,
			"KSM merges equal pages of processes, so that a VM can find out the memory "
			"contents of another: write 2 to /sys/kernel/mm/ksm/run");
}

/* Returns whether the kernel reports a weakness. Ignores "SMT vulnerable", which check_smt
 * covers. */
static bool is_vulnerable(const char *value)
{
	return strstr(value, "Vulnerable") || strstr(value, "VMX: vulnerable");
}

static void check_huge_pages(const struct check *c)
{
	char value[VALUE_MAX], weakness[VALUE_MAX];

	read_value(c, "module/kvm/parameters/nx_huge_pages", value);
	read_value(c, "devices/system/cpu/vulnerabilities/itlb_multihit", weakness);
	if ((value[0] == 'N' || strcmp(value, "never") == 0) && weakness[0] &&
	    strcmp(weakness, "Not affected") != 0)
		c->notify(c->arg, "kvm.nx_huge_pages is off, so that a guest can halt the CPUs of "
				  "this host: boot with kvm.nx_huge_pages=auto");
}

static void check_weakness(const struct check *c, const char *name)
{
	char path[NAME_MAX + 64], value[VALUE_MAX], sentence[SENTENCE_MAX];

	snprintf(path, sizeof(path), "devices/system/cpu/vulnerabilities/%s", name);
	read_value(c, path, value);
	if (!is_vulnerable(value))
		return;
	snprintf(sentence, sizeof(sentence),
		 "the CPU is vulnerable to %.64s (\"%.200s\"): update kernel and microcode, and do "
		 "not boot with mitigations=off",
		 name, value);
	c->notify(c->arg, sentence);
}

static void check_weaknesses(const struct check *c)
{
	char path[PATH_MAX];
	struct dirent **names = NULL;

	snprintf(path, sizeof(path), "%s/devices/system/cpu/vulnerabilities", c->sys);
	int n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.')
			check_weakness(c, names[i]->d_name);
		free(names[i]);
	}
	free(names);
}

void posture_check(const char *sys, bool cores_are_apart,
		   void (*notify)(void *arg, const char *sentence), void *arg)
{
	const struct check c = {
		.sys = sys, .cores_are_apart = cores_are_apart, .notify = notify, .arg = arg};

	check_smt(&c);
	check_ksm(&c);
	check_huge_pages(&c);
	check_weaknesses(&c);
}

bool posture_can_part_cores(void)
{
	unsigned long cookie = 0;

	/* Without SMT, prctl fails with ENODEV. */
	return prctl(PR_SCHED_CORE, PR_SCHED_CORE_GET, 0, 0 /* this thread */, &cookie) == 0;
}

void posture_check_host(bool core_scheduling, void (*notify)(void *arg, const char *sentence),
			void *arg)
{
	posture_check("/sys", core_scheduling && posture_can_part_cores(), notify, arg);
}
