// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/warden/cgroup.h"

static const struct {
	const char *line, *root, *point; /* root NULL: not a cgroup v2 mount */
} mounts[] = {
	{"31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", "/",
	 "/sys/fs/cgroup"},
	{"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n", "/",
	 "/sys/fs/cgroup/unified"},
	{"41 31 0:38 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "/docker/ab",
	 "/sys/fs/cgroup"},
	{"32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n", NULL, NULL},
	{"22 23 0:20 / /proc rw - proc proc rw\n", NULL, NULL},
	{" - cgroup2 ", NULL, NULL},
	{" - cgroup2", NULL, NULL},
	{"", NULL, NULL},
	{"nonsense\n", NULL, NULL},
};

static void cgroup_v2_mount_is_parsed(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(mounts); i++) {
		char root[CGROUP_PATH_MAX], point[CGROUP_PATH_MAX];
		bool found = cgroup_mount_line(mounts[i].line, root, point);

		assert_int_equal(found, mounts[i].root != NULL);
		if (!found)
			continue;
		assert_string_equal(root, mounts[i].root);
		assert_string_equal(point, mounts[i].point);
	}
}

static void mount_of_the_whole_hierarchy_is_found(void **state)
{
	const char part[] = "40 39 0:26 /system.slice/x /sys/fs/cgroup/system.slice/x rw - cgroup2 "
			    "cgroup2 rw\n";
	const char whole[] = "39 24 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
	const char *const orders[][2] = {{part, whole}, {whole, part}};
	char root[CGROUP_PATH_MAX], point[CGROUP_PATH_MAX], text[512];

	for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
		int n = snprintf(text, sizeof(text), "22 23 0:20 / /proc rw - proc proc rw\n%s%s",
				 orders[i][0], orders[i][1]);
		FILE *f = fmemopen(text, (size_t)n, "r");

		assert_true(cgroup_find_mount(f, root, point));
		fclose(f);
		assert_string_equal(root, "/");
		assert_string_equal(point, "/sys/fs/cgroup");
	}
	FILE *f = fmemopen(text, strcspn(text, "\n"), "r");
	assert_false(cgroup_find_mount(f, root, point));
	fclose(f);
}

static const struct {
	const char *line, *path;
} own[] = {
	{"0::/\n", "/"},
	{"0::/system.slice/ramet.service\n", "/system.slice/ramet.service"},
	{"0::/no-newline", "/no-newline"},
	{"4:memory:/process\n", NULL},
	{"10::/x\n", NULL},
	{"0::\n", NULL},
	{"", NULL},
};

static void own_path_is_parsed(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		char path[CGROUP_PATH_MAX];
		bool found = cgroup_own_line(own[i].line, path);

		assert_int_equal(found, own[i].path != NULL);
		if (found)
			assert_string_equal(path, own[i].path);
	}
}

static void too_long_path_is_refused(void **state)
{
	char line[CGROUP_PATH_MAX + 8] = "0::/", path[CGROUP_PATH_MAX];

	memset(line + 4, 'x', CGROUP_PATH_MAX - 2);
	assert_true(cgroup_own_line(line, path) == true);
	line[4 + CGROUP_PATH_MAX - 2] = 'x';
	assert_false(cgroup_own_line(line, path));
}

static const struct {
	const char *name;
	int64_t slot; /* -1: not a VM's cgroup */
} names[] = {
	{"vm-0", 0},	      {"vm-7", 7},   {"vm-16383", 16383},    {"vm-16384", -1},
	{"vm-007", -1},	      {"vm-", -1},   {"vm--1", -1},	     {"vm-+1", -1},
	{"vm- 1", -1},	      {"vm-1x", -1}, {"service", -1},	     {"warden", -1},
	{"cgroup.procs", -1}, {"", -1},	     {"vm-99999999999", -1}, {"vm-00000", -1},
	{"vm-16383 ", -1},
};

static void vm_name_has_one_spelling(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		uint32_t slot = 0;
		bool ours = cgroup_vm_name(names[i].name, &slot);

		if (ours != (names[i].slot >= 0))
			fail_msg("\"%s\" is %s", names[i].name, ours ? "accepted" : "refused");
		if (ours)
			assert_int_equal(slot, names[i].slot);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cgroup_v2_mount_is_parsed),
		cmocka_unit_test(mount_of_the_whole_hierarchy_is_found),
		cmocka_unit_test(own_path_is_parsed),
		cmocka_unit_test(too_long_path_is_refused),
		cmocka_unit_test(vm_name_has_one_spelling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
