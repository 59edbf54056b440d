// SPDX-License-Identifier: Apache-2.0
/* The limits that PID 1 sets, in a folder in place of /proc/sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/system/system.h"
#include "test/remove_tree.h"

#define GIB (1ull << 30)

static const char *const folders[] = {"fs", "fs/inotify", "net", "net/core", "net/ipv4", "vm"};
static const struct {
	const char *name, *value;
} wanted[] = {
	{"fs/inotify/max_user_watches", "262144"},
	{"fs/inotify/max_user_instances", "1024"},
	{"vm/max_map_count", "1048576"},
	{"fs/file-max", "9223372036854775807"},
	{"net/core/somaxconn", "4096"},
	{"net/ipv4/ping_group_range", "0 2147483647"},
	{"net/ipv4/ip_unprivileged_port_start", "0"},
	{"vm/compaction_proactiveness", "0"},
};

static char root[] = "/tmp/ramet-sysctl-XXXXXX";

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

static void expect(const char *name, const char *value)
{
	char text[64];
	scoped_fd int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	assert_true(n >= 0);
	text[n] = '\0';
	assert_string_equal(text, value);
}

static int make_files(void **state)
{
	if (!mkdtemp(root))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		assert_int_equal(mkdir(path_of(folders[i]), 0700), 0);
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		close(open(path_of(wanted[i].name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	return 0;
}

static int remove_files(void **state)
{
	return remove_tree(root);
}

static void test_limits_are_those_of_a_development_machine(void **state)
{
	sysctl_set_all(root, GIB);
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		expect(wanted[i].name, wanted[i].value);
}

static void expect_watches(uint64_t ram_bytes, const char *value)
{
	/* A sysctl has no old content that a shorter value would leave. */
	assert_int_equal(truncate(path_of("fs/inotify/max_user_watches"), 0), 0);
	sysctl_set_all(root, ram_bytes);
	expect("fs/inotify/max_user_watches", value);
}

static void test_number_of_watches_follows_the_ram(void **state)
{
	expect_watches(GIB / 8, "32768");
	expect_watches(4 * GIB, "1048576");
	expect_watches(64 * GIB, "1048576");
}

static void test_setting_that_the_kernel_does_not_have_is_left_out(void **state)
{
	assert_int_equal(unlink(path_of("fs/inotify/max_user_instances")), 0);
	sysctl_set_all(root, GIB);
	assert_int_not_equal(access(path_of("fs/inotify/max_user_instances"), F_OK), 0);
	expect("vm/max_map_count", "1048576");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits_are_those_of_a_development_machine),
		cmocka_unit_test(test_number_of_watches_follows_the_ram),
		cmocka_unit_test(test_setting_that_the_kernel_does_not_have_is_left_out),
	};

	return cmocka_run_group_tests(tests, make_files, remove_files);
}
