// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/system/system.h"

static char folder[] = "/tmp/ramet-boot-id-XXXXXX";

static void read_id(char text[64])
{
	scoped_fd int fd = open(BOOT_ID_PATH, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, 63);

	assert_int_equal(n, 37);
	text[n] = '\0';
}

static void test_kernels_own_boot_id_is_never_written(void **state)
{
	assert_int_equal(boot_id_renew(), -EACCES);
}

static void test_boot_id_is_renewed(void **state)
{
	char file[64], kernel[64], first[64], second[64];
	struct err e;

	snprintf(file, sizeof(file), "%s/id", folder);
	read_id(kernel);
	assert_int_equal(boot_id_mount(file, &e), 0);
	read_id(first);
	assert_string_equal(first, kernel);
	assert_int_equal(boot_id_renew(), 0);
	read_id(first);
	assert_string_not_equal(first, kernel);
	assert_int_equal(boot_id_renew(), 0);
	read_id(second);
	assert_string_not_equal(second, first);
	for (size_t i = 0; i < 36; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		assert_non_null(strchr(dash ? "-" : "0123456789abcdef", second[i]));
	}
	assert_int_equal(second[14], '4');
	assert_non_null(strchr("89ab", second[19]));
	assert_int_equal(second[36], '\n');
	umount2(BOOT_ID_PATH, MNT_DETACH);
	unlink(file);
}

static void test_mount_fails_when_the_file_can_not_be_created(void **state)
{
	struct err e;

	assert_int_equal(boot_id_mount("/nonexistent/id", &e), -ENOENT);
	assert_string_equal(e.text, "write /nonexistent/id: No such file or directory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels_own_boot_id_is_never_written),
		cmocka_unit_test(test_boot_id_is_renewed),
		cmocka_unit_test(test_mount_fails_when_the_file_can_not_be_created),
	};

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    !mkdtemp(folder)) {
		fprintf(stderr, "skipped: mounts are not permitted here\n");
		return 77;
	}
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	return failed;
}
