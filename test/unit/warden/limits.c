// SPDX-License-Identifier: Apache-2.0
/* Which limits of a host are reported as too small for max_vms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "orchestrator/warden/limits.h"

static struct config config;
static struct host_limits host;
static char said[16384];
static unsigned sentences;

static int reset(void **state)
{
	config_defaults(&config);
	config.max_vms = 1000;
	snprintf(config.network, sizeof(config.network), "10.251.0.0/17");
	for (int i = 0; i < LIMITS; i++)
		host.most[i] = LIMIT_NONE;
	return 0;
}

static void note(void *arg, const char *sentence)
{
	sentences++;
	strncat(said, sentence, sizeof(said) - strlen(said) - 2);
	strcat(said, "\n");
}

static const char *check(void)
{
	said[0] = '\0';
	sentences = 0;
	limits_check(&host, &config, note, NULL);
	return said;
}

static void unlimited_host_causes_no_warning(void **state)
{
	assert_string_equal(check(), "");
}

static void each_limit_is_reported_just_below_the_need(void **state)
{
	for (int i = 0; i < LIMITS; i++) {
		uint64_t need = limits_need((enum host_limit)i, &config);

		assert_true(need > 0);
		host.most[i] = need;
		assert_string_equal(check(), "");
		host.most[i] = need - 1;
		check();
		assert_int_equal(sentences, 1);
		host.most[i] = LIMIT_NONE;
	}
}

static void all_small_limits_are_reported_at_once(void **state)
{
	memset(&host, 0, sizeof(host));
	check();
	assert_int_equal(sentences, LIMITS);
}

static void sentence_names_value_need_and_command(void **state)
{
	host.most[LIMIT_PID_MAX] = 4096;
	assert_string_equal(check(), "kernel.pid_max is 4096, but max_vms = 1000 needs 7024: "
				     "`sysctl -w kernel.pid_max=7024`, and a line in "
				     "/etc/sysctl.d\n");
	host.most[LIMIT_PID_MAX] = LIMIT_NONE;
	host.most[LIMIT_TASKS] = 4915;
	assert_string_equal(check(), "pids.max of rametd's cgroup, or of one above it, is 4915, "
				     "but max_vms = 1000 needs 7024: set TasksMax= of its unit or "
				     "slice, or pids.max itself, to at least 7024\n");
}

static void needs_follow_the_settings(void **state)
{
	assert_int_equal(limits_need(LIMIT_NEIGHBOURS, &config), 4000);
	assert_int_equal(limits_need(LIMIT_CONNTRACK, &config), 1024000);
	config.vcpus = 8;
	assert_int_equal(limits_need(LIMIT_THREADS_MAX, &config), 13024);
	snprintf(config.ipv6, sizeof(config.ipv6), "no");
	assert_int_equal(limits_need(LIMIT_NEIGHBOURS6, &config), 0);
	config.network[0] = '\0';
	assert_int_equal(limits_need(LIMIT_NEIGHBOURS, &config), 0);
	assert_int_equal(limits_need(LIMIT_CONNTRACK, &config), 0);
}

/* Linux's own values, and those of systemd, are enough for the default settings. */
static void default_settings_fit_a_usual_host(void **state)
{
	config_defaults(&config);
	host.most[LIMIT_NOFILE] = host.most[LIMIT_NR_OPEN] = 1048576;
	host.most[LIMIT_PID_MAX] = 32768;
	host.most[LIMIT_THREADS_MAX] = 30000; /* of a host with 4 GiB */
	host.most[LIMIT_MAP_COUNT] = 65530;
	host.most[LIMIT_NET_NS] = 15000;
	host.most[LIMIT_NEIGHBOURS] = host.most[LIMIT_NEIGHBOURS6] = 1024;
	host.most[LIMIT_CONNTRACK] = 262144;
	host.most[LIMIT_DEPTH] = 10;
	assert_string_equal(check(), "");
}

static void this_host_can_be_read(void **state)
{
	limits_read(&host, &config);
	assert_true(host.most[LIMIT_PID_MAX] > 300);
	assert_int_not_equal(host.most[LIMIT_PID_MAX], LIMIT_NONE);
	assert_int_not_equal(host.most[LIMIT_NR_OPEN], LIMIT_NONE);
	assert_true(host.most[LIMIT_NOFILE] > 0);
	assert_true(host.most[LIMIT_TASKS] > 0);
	assert_true(host.most[LIMIT_DEPTH] > 0);
}

#define TEST(f) cmocka_unit_test_setup(f, reset)

static void shell_asks_for_the_cgroup_of_the_unit(void **state)
{
	char root[] = "/tmp/ramet-limits-XXXXXX", command[256];

	assert_non_null(mkdtemp(root));
	limits_use_unit(&config, root);
	assert_string_equal(config.cgroup, "");
	snprintf(command, sizeof(command), "mkdir -p %s/sys/fs/cgroup%s", root, LIMITS_UNIT_CGROUP);
	assert_int_equal(system(command), 0);
	limits_use_unit(&config, root);
	assert_string_equal(config.cgroup, "/system.slice/ramet-vms.service");
	snprintf(config.cgroup, sizeof(config.cgroup), "/mine");
	limits_use_unit(&config, root);
	assert_string_equal(config.cgroup, "/mine");
	snprintf(command, sizeof(command), "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unlimited_host_causes_no_warning),
		TEST(each_limit_is_reported_just_below_the_need),
		TEST(all_small_limits_are_reported_at_once),
		TEST(sentence_names_value_need_and_command),
		TEST(needs_follow_the_settings),
		TEST(default_settings_fit_a_usual_host),
		TEST(this_host_can_be_read),
		TEST(shell_asks_for_the_cgroup_of_the_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
